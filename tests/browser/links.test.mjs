// An address shows a colleague the same; the keyboard leads everywhere.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { call, facts, start, stop, viewing } from "./page.mjs";

before(start);
after(stop);

/** What the rows of the first table are about, in their order. */
const rows = (page) => page.locator("main [data-row]").evaluateAll((all) => all.map((row) => row.dataset.key ?? row.innerText));

/** Follows a link as people do, and waits for the page behind it. */
async function follow(view, page, link) {
    const before = page.url();
    await link.click();
    await page.waitForURL((url) => url.href !== before);
    await view.awake();
}

test("attempts are filtered, sorted and paged by the address, and the way back leads back", async () => {
    let address;
    let shown;
    await viewing({}, async (view, page) => {
        await view.go("/attempts?limit=30");
        await page.getByText("More filters").click();
        await page.getByLabel("Over the reference, at least").fill("1.5");
        await follow(view, page, page.getByRole("button", { name: "Filter" }));
        await follow(view, page, page.locator("thead").getByRole("link", { name: /^Over the reference/ }));
        const speedups = await page.locator("main [data-row] td.number:nth-of-type(3)").allInnerTexts();
        const numbers = speedups.map((text) => Number.parseFloat(text));
        assert.equal(numbers.length, 30);
        assert.deepEqual(numbers, numbers.toSorted((a, b) => b - a), "the fastest come first");
        assert.ok(numbers.at(-1) >= 1.5);
        const first = await rows(page);
        await follow(view, page, page.getByRole("link", { name: "Next page" }));
        shown = await rows(page);
        assert.ok(shown.length > 0 && shown.every((row) => !first.includes(row)), "other rows than on the first page");
        address = page.url();
        await page.goBack();
        await view.awake();
        assert.deepEqual(await rows(page), first);
    });
    await viewing({}, async (view, page) => {
        await view.go(address);
        assert.deepEqual(await rows(page), shown, "a colleague sees the same");
        assert.equal(await page.getByLabel("Over the reference, at least").inputValue(), "1.5");
        assert.match(await page.locator("th[aria-sort=descending]").innerText(), /^Over the reference/);
    });
});

test("a campaign shows its runs in the order of the address", async () => {
    await viewing({}, async (view, page) => {
        await view.go(`${facts.many.campaign}?sort=speedup&order=asc`);
        const ascending = await rows(page);
        await view.go(`${facts.many.campaign}?sort=speedup&order=desc`);
        assert.equal(await page.locator("th[aria-sort]").getAttribute("aria-sort"), "descending");
        assert.deepEqual((await rows(page)).filter((row) => ascending.includes(row)).length, ascending.length);
        assert.notDeepEqual(await rows(page), ascending);
    });
});

test("an attempt shows what it is compared with, and how, by its address", async () => {
    await viewing({}, async (view, page) => {
        await view.go(facts.pages.attempt);
        await follow(view, page, page.getByRole("link", { name: "Source and difference" }));
        await follow(view, page, page.getByRole("link", { name: /Against its parent/ }));
        await follow(view, page, page.getByRole("link", { name: "Side by side" }));
        const address = page.url();
        assert.match(address, /diff=parent/);
        await view.go(address);
        await page.locator(".diff.split").waitFor();
        const current = await page.locator("#source .chips a[aria-current]").allInnerTexts();
        assert.deepEqual(current.map((text) => text.split(",")[0]), ["Against its parent", "Side by side"]);
        assert.equal(await page.locator("#source").evaluate((part) => part.getBoundingClientRect().top < innerHeight), true);
    });
});

test("the keyboard goes through rows, chooses some, and compares them", async () => {
    let address;
    await viewing({}, async (view, page) => {
        await view.go("/attempts?sort=speedup");
        for (const key of ["j", "x", "j", "j", "k", "x"]) {
            await page.keyboard.press(key);
        }
        assert.equal(await page.locator("main [data-row] input:checked").count(), 2);
        await page.keyboard.press("c");
        await page.waitForURL((url) => url.pathname === "/compare");
        await view.awake();
        await page.getByRole("heading", { name: "Compare 2 attempts" }).waitFor();
        const all = await page.locator("table.compare tbody tr").count();
        await follow(view, page, page.getByRole("link", { name: "Show differences only" }));
        assert.ok((await page.locator("table.compare tbody tr").count()) < all);
        address = page.url();
    });
    await viewing({}, async (view, page) => {
        await view.go(address);
        await page.getByRole("heading", { name: "Compare 2 attempts" }).waitFor();
        await page.getByRole("link", { name: "Show equal facts too" }).waitFor();
    });
});

/** What the address says is chosen. */
const picked = (page) => (new URL(page.url()).searchParams.get("pick") ?? "").split(",").filter((name) => name !== "");
const boxes = (page) => page.locator("main [data-row] input[name=a]");
const chosen = (page) => page.locator("main [data-row] input[name=a]:checked").evaluateAll((all) => all.map((box) => box.value));

test("what is chosen stands in the address: a reload, a link, another order and the next page keep it", async () => {
    let address;
    let first;
    await viewing({}, async (view, page) => {
        await view.go("/attempts?limit=30&sort=speedup");
        await page.keyboard.press("j");
        await page.keyboard.press("x");
        await boxes(page).nth(1).check();
        first = await chosen(page);
        assert.equal(first.length, 2);
        assert.deepEqual(picked(page), first, "at once, without a reload");
        address = page.url();
        await page.reload();
        await view.awake();
        assert.deepEqual(await chosen(page), first);
        await boxes(page).nth(1).uncheck();
        assert.deepEqual(picked(page), first.slice(0, 1));
        await boxes(page).nth(1).check();
        const saved = await page.getByRole("link", { name: "Save this view" }).getAttribute("href");
        assert.match(new URL(saved, page.url()).searchParams.get("query"), /pick=/);
        await follow(view, page, page.getByRole("link", { name: "Next page" }));
        assert.deepEqual([await chosen(page), picked(page)], [[], first]);
        await page.getByText("2 attempts chosen that this list does not show.").waitFor();
        await boxes(page).first().check();
        assert.equal(picked(page).length, 3);
        await follow(view, page, page.locator("thead").getByRole("link", { name: /^Over the reference/ }));
        assert.equal(picked(page).length, 3, "another order");
        await follow(view, page, page.getByRole("button", { name: "Filter" }));
        assert.equal(picked(page).length, 3, "a form");
        await page.keyboard.press("c");
        await page.waitForURL((url) => url.pathname === "/compare");
        await page.getByRole("heading", { name: "Compare 3 attempts" }).waitFor();
    });
    await viewing({ javaScript: false }, async (view, page) => {
        await view.go(address);
        assert.deepEqual(await chosen(page), first, "a colleague sees the same, without scripts, too");
    });
});

test("attempts of a run and those of others are compared together", async () => {
    await viewing({}, async (view, page) => {
        await view.go(facts.pages.run);
        await boxes(page).first().check();
        const [own] = await chosen(page);
        await page.reload();
        await view.awake();
        assert.deepEqual(await chosen(page), [own]);
        await follow(view, page, page.getByRole("link", { name: "Choose more among all attempts" }));
        assert.deepEqual([new URL(page.url()).pathname, picked(page)], ["/attempts", [own]]);
        await page.locator(`main [data-row] input[name=a]:not([value="${own}"])`).first().check();
        await page.keyboard.press("c");
        await page.waitForURL((url) => url.pathname === "/compare" && url.searchParams.getAll("a").includes(own));
        await page.getByRole("heading", { name: "Compare 2 attempts" }).waitFor();
    });
});

test("more than can be compared cannot be chosen, which is said at once", async () => {
    await viewing({}, async (view, page) => {
        await view.go("/attempts?limit=30");
        await boxes(page).first().check();
        await boxes(page).nth(20).click({ modifiers: ["Shift"] });
        await page.locator("form[data-compare] .said").filter({ hasText: "At most 12 are compared" }).waitFor();
        assert.equal((await chosen(page)).length, 12);
        assert.equal(picked(page).length, 12);
        await boxes(page).nth(3).uncheck();
        assert.equal(await page.locator("form[data-compare] .said").innerText(), "");
    });
});

test("a filter without a field is shown, and can be taken away", async () => {
    await viewing({}, async (view, page) => {
        const campaign = facts.many.campaign.split("/").at(-1);
        await view.go(`/attempts?campaign=${campaign}&min_reward=0&q=a`);
        const chips = page.getByRole("list", { name: "Further filters in force" }).getByRole("link");
        assert.equal(await chips.count(), 2);
        assert.deepEqual(await view.faults(), []);
        await follow(view, page, chips.filter({ hasText: "campaign" }));
        const { searchParams } = new URL(page.url());
        assert.deepEqual([searchParams.has("campaign"), searchParams.get("min_reward"), searchParams.get("q")], [false, "0", "a"]);
        assert.equal(await chips.count(), 1);
    });
});

test("an attempt that does not exist is named and does not take the others with it", async () => {
    await viewing({}, async (view, page) => {
        const run = facts.pages.run.split("/").at(-1);
        const response = await view.go(`/compare?a=run_${"0".repeat(32)}/1&a=${run}/1&a=${run}/9999&a=nonsense`);
        assert.equal(response.status(), 200);
        await page.getByRole("heading", { name: "Compare 1 attempt", exact: true }).waitFor();
        await page.getByText(`${run}/9999 does not exist.`).waitFor();
        await page.getByText("nonsense is not RUN/NUMBER.").waitFor();
        assert.equal(await page.locator(".notice.bad").count(), 3);
        assert.deepEqual(await view.faults(), []);
    });
});

test("comparing a single attempt stays on the page and explains how to compare", async () => {
    await viewing({}, async (view, page) => {
        for (const path of ["/attempts", facts.pages.run]) {
            await view.go(path);
            await page.keyboard.press("c");
            await page.locator("form[data-compare] .said").filter({ hasText: "Choose two or more first" }).waitFor();
            await page.locator("form[data-compare] .said").evaluate((said) => said.replaceChildren());
            await page.locator("main [data-row] input[type=checkbox]").first().check();
            await page.locator("form[data-compare] button").click();
            await page.locator("form[data-compare] .said").filter({ hasText: "Choose two or more first" }).waitFor();
            assert.equal(new URL(page.url()).pathname, path);
        }
    });
});

test("a short id leads to the page of the whole one, and a list says as of when it is", async () => {
    await viewing({}, async (view, page) => {
        const campaign = facts.many.campaign.split("/").at(-1);
        await view.go(`/campaigns/${campaign.slice(-12)}?sort=speedup`);
        assert.equal(new URL(page.url()).pathname + new URL(page.url()).search, `/campaigns/${campaign}?sort=speedup`);
        await view.go(facts.pages.attempt.replace(facts.run, facts.run.slice(-12)));
        assert.equal(new URL(page.url()).pathname, facts.pages.attempt);
        for (const path of ["/attempts?sort=speedup", "/tasks", "/models"]) {
            await view.go(path);
            await page.getByText(/As of \d{4}-\d\d-\d\d/).waitFor();
            assert.equal(await page.getByRole("link", { name: "Read anew" }).getAttribute("href"), path);
        }
    });
});

test("the keyboard opens a row, searches, reads anew, helps, and jumps to every section", async () => {
    await viewing({}, async (view, page) => {
        await view.go("/");
        await page.keyboard.press("j");
        await page.keyboard.press("Enter");
        await page.waitForURL((url) => url.pathname.startsWith("/campaigns/"));
        await view.awake();
        for (const [key, path] of [["a", "/attempts"], ["t", "/tasks"], ["p", "/compare"], ["w", "/workers"], ["m", "/models"],
            ["s", "/search"], ["h", "/health"], ["c", "/"]]) {
            await page.keyboard.press("g");
            await page.keyboard.press(key);
            await page.waitForURL((url) => url.pathname === path);
            await view.awake();
        }
        await view.go("/workers");
        await page.keyboard.press("/");
        await page.waitForURL((url) => url.pathname === "/search");
        await page.locator("[data-search]:focus").waitFor();
        await view.awake();
        await page.keyboard.type("softmax");
        assert.equal(await page.locator("[data-search]").inputValue(), "softmax", "where there is no field, / leads to one");
        assert.equal(new URL(page.url()).hash, "");
        await view.go("/attempts");
        await page.keyboard.press("/");
        await page.keyboard.type("softmax j k ?");
        assert.equal(await page.locator("[data-search]").inputValue(), "softmax j k ?", "letters in a field are letters");
        await page.keyboard.press("Escape");
        assert.equal(await page.locator("[data-search]").evaluate((field) => field === document.activeElement), false);
        const read = page.waitForRequest((request) => new URL(request.url()).pathname === "/attempts");
        await page.keyboard.press("r");
        assert.notEqual((await read).resourceType(), "document", "it reads anew without loading the page again");
        await page.keyboard.press("?");
        await page.getByRole("dialog").waitFor();
        assert.deepEqual(await view.faults(), []);
        await page.keyboard.press("Escape");
        await page.getByRole("dialog").waitFor({ state: "hidden" });
    });
});

test("single keys can be switched off and on again", async () => {
    await viewing({}, async (view, page) => {
        await view.go("/attempts");
        await page.getByRole("button", { name: /Keyboard/ }).click();
        await page.getByRole("button", { name: "Switch single keys off" }).click();
        await page.waitForURL((url) => url.pathname === "/attempts");
        await page.locator("html[data-keys=off][data-awake]").waitFor({ state: "attached" });
        await page.keyboard.press("?");
        await page.keyboard.press("j");
        assert.equal(await page.getByRole("dialog").isVisible(), false);
        assert.equal(await page.evaluate(() => document.activeElement.closest("[data-row]")), null);
        await page.getByRole("button", { name: /Keyboard/ }).click();
        assert.deepEqual(await view.faults(), []);
        await page.getByRole("button", { name: "Switch single keys on" }).click();
        await page.locator("html:not([data-keys])[data-awake]").waitFor({ state: "attached" });
        await page.keyboard.press("?");
        await page.getByRole("dialog").waitFor();
    });
});

test("a dot of a campaign's picture says which attempt it is and leads to it", async () => {
    await viewing({}, async (view, page) => {
        await view.go(facts.pages["small-campaign"]);
        const dot = page.locator("figure.chart a[href*='/attempts/']:has(circle.dot)").first();
        assert.match(await dot.getAttribute("aria-label"), /attempt \d+: /);
        assert.match(await dot.locator("title").textContent(), /attempt \d+: /);
        assert.equal(await dot.getAttribute("tabindex"), "-1", "the points are not tab stops");
        const href = await dot.getAttribute("href");
        await dot.click();
        await page.waitForURL((url) => url.pathname === href);
    });
});

test("a search says how many texts there are, and is narrowed to a task by its address", async () => {
    await viewing({}, async (view, page) => {
        await view.go("/search?q=gaussian");
        await page.getByText(/^\d+ texts?(,|$)/).waitFor();
        await page.getByLabel("Task").fill("no such task");
        await page.getByRole("button", { name: "Search" }).click();
        await page.waitForURL((url) => url.searchParams.get("task") === "no such task");
        await page.getByText("Nothing was found.").waitFor();
        await page.getByLabel("Task").fill("gaussian");
        await page.getByRole("button", { name: "Search" }).click();
        await page.getByText(/^\d+ texts?(,|$)/).waitFor();
    });
});

test("a part of the picture of all attempts has an address of its own", async () => {
    await viewing({}, async (view, page) => {
        await view.go(`${facts.many.campaign}?status=completed`);
        await page.getByLabel("From attempt").fill("3");
        await page.getByLabel("to", { exact: true }).fill("9");
        await page.getByRole("button", { name: "Show", exact: true }).click();
        await page.waitForURL((url) => url.searchParams.get("from") === "3" && url.searchParams.get("status") === "completed");
        const dots = page.locator("#every-attempt a:has(circle.dot)");
        assert.ok((await dots.count()) <= 7 && (await dots.count()) > 0, "seven attempts at most");
        await view.fits();
        assert.deepEqual(await view.faults(), []);
        await page.getByRole("link", { name: "All attempts of the campaign" }).click();
        await page.waitForURL((url) => !url.searchParams.has("from"));
        assert.ok((await dots.count()) > 7);
        view.allow(/400/);
        await view.go(`${facts.many.campaign}?from=x`);
        await page.getByText("request.invalid_query").waitFor();
    });
});

/** Drags over a part of an element, from share to share of its width. */
async function drag(page, locator, from, to) {
    await locator.scrollIntoViewIfNeeded();
    const { x, y, width, height } = await locator.boundingBox();
    await page.mouse.move(x + from * width, y + height / 2);
    await page.mouse.down();
    await page.mouse.move(x + to * width, y + height / 2, { steps: 4 });
}

test("dragging over the picture of all attempts looks closer, and the address says at what", async () => {
    await viewing({}, async (view, page) => {
        await view.go(`${facts.many.campaign}?status=completed`);
        const dots = page.locator("#every-attempt circle.dot");
        const all = await dots.count();
        const panel = page.locator("#every-attempt [data-brush] > rect.hit");
        await drag(page, panel, 0.3, 0.6);
        assert.equal(await page.locator("#every-attempt rect.window").count(), 1, "what is chosen is shaded");
        await page.keyboard.press("Escape");
        await page.mouse.up();
        assert.equal(await page.locator("#every-attempt rect.window").count(), 0);
        assert.ok(!page.url().includes("from="), "who thinks better of it stays");
        await drag(page, panel, 0.3, 0.6);
        await page.mouse.up();
        await page.waitForURL((url) => url.searchParams.has("from"));
        await view.awake();
        const { searchParams } = new URL(page.url());
        const [from, to] = ["from", "to"].map((name) => searchParams.get(name));
        assert.match(from, /^\d+$/);
        assert.ok(Number(from) > 1 && Number(from) < Number(to), page.url());
        assert.equal(searchParams.get("status"), "completed", "the rest of the address stays");
        const part = await dots.count();
        assert.ok(part > 0 && part < all, `${part} of ${all}`);
        assert.equal(await page.getByLabel("From attempt").inputValue(), from);
        await page.getByLabel("From attempt").focus();
        await page.keyboard.press("Escape");
        assert.ok(page.url().includes("from="), "in a field it only leaves the field");
        await page.keyboard.press("Escape");
        await page.waitForURL((url) => !url.searchParams.has("from") && !url.searchParams.has("to"));
        await view.awake();
        assert.equal(new URL(page.url()).searchParams.get("status"), "completed");
        assert.equal(await dots.count(), all, "Escape gives the part up");
    });
});

test("dragging over a timeline looks closer, and the address says at what", async () => {
    const { items } = await call(facts.base, null, "GET", "/attempts?sort=speedup&limit=500");
    const { run, number } = items.find((item) => item.target === "cuda" && item.parent !== null);
    await viewing({}, async (view, page) => {
        await view.go(`/runs/${run}/attempts/${number}?tab=profile#timeline`);
        await drag(page, page.locator("#timeline [data-brush] > rect.hit"), 0.25, 0.5);
        await page.mouse.up();
        await page.waitForURL((url) => url.searchParams.has("from") && url.hash === "#timeline");
        await view.awake();
        await page.locator("#timeline rect.window").first().waitFor({ state: "attached" });
        assert.deepEqual(await view.faults(), []);
        await page.getByRole("link", { name: "All of it" }).click();
        await page.waitForURL((url) => !url.searchParams.has("from"));
    });
});

test("a dot among all attempts says which attempt it is and leads to it", async () => {
    await viewing({}, async (view, page) => {
        await view.go("/attempts?min_speedup=1.1");
        await page.locator("details.picture summary").click();
        await page.getByText(/\d+ attempts by when they began/).waitFor();
        const canvas = page.locator("figure.cloud canvas");
        await canvas.scrollIntoViewIfNeeded();
        const { x, y, width, height } = await canvas.boundingBox();
        const words = page.locator("figure.cloud .pointed");
        let found = null;
        // Those of long ago stand at the left end, today's at the right one.
        const from = (first, last) => Array.from({ length: Math.ceil((last - first) / 0.012) }, (_, n) => first + n * 0.012);
        for (const at of [...from(0.03, 0.12), ...from(0.92, 0.998), ...from(0.12, 0.92)]) {
            for (let down = 0.03; down < 0.98 && found === null; down += 0.03) {
                await page.mouse.move(x + at * width, y + down * height);
                await page.waitForTimeout(40);
                found = (await canvas.getAttribute("data-pointed")) === null ? null : [x + at * width, y + down * height];
            }
            if (found !== null) break;
        }
        assert.ok(found !== null, "no dot can be pointed at");
        await words.filter({ hasText: /, attempt \d+: .*, \d+\.\d\d×/ }).waitFor();
        const [task, number] = /^(.*), attempt (\d+):/.exec(await words.innerText()).slice(1);
        await page.mouse.click(...found);
        await page.waitForURL((url) => new RegExp(`/runs/[^/]+/attempts/${number}$`).test(url.pathname));
        await view.awake();
        assert.match(await page.locator("h1").innerText(), new RegExp(`Attempt ${number} of ${task}`));
    });
});

test("campaigns are sorted by what they have come to", async () => {
    await viewing({}, async (view, page) => {
        for (const [key, name] of [["speedup", "Best over the reference"], ["speedup_over_fastest", "Over the fastest"], ["cost", "Cost"], ["duration", "Duration"]]) {
            await view.go("/");
            await follow(view, page, page.locator("thead").getByRole("link", { name: new RegExp(`^${name}`) }));
            assert.equal(new URL(page.url()).searchParams.get("sort"), key);
            assert.match(await page.locator("th[aria-sort=descending]").innerText(), new RegExp(name));
            const keys = await rows(page);
            const { items } = await call(facts.base, null, "GET", `/campaigns?sort=${key}`);
            assert.deepEqual(keys, items.map((item) => item.id));
            const speedups = items.map((item) => item.best_speedup ?? -1);
            assert.ok(key !== "speedup" || speedups.every((one, place) => place === 0 || one <= speedups[place - 1]), `${speedups}`);
        }
    });
});

test("the list of campaigns says what each has come to", async () => {
    await viewing({}, async (view, page) => {
        await view.go("/");
        const id = facts.campaign;
        const row = page.locator(`tr[data-key="${id}"]`);
        const cells = await row.locator("td").allInnerTexts();
        const heads = await page.locator("thead th").allInnerTexts();
        const cell = (name) => cells[heads.findIndex((head) => head.startsWith(name)) - 1];
        assert.equal(cell("Target"), "cpu");
        assert.match(cell("Best over the reference"), /^\d+\.\d\d×\s+mean \d+\.\d\d× \(\d+ of \d+\)$/);
        assert.match(cell("Over the fastest"), /^\d+\.\d\d×\s+mean \d+\.\d\d× \(\d+ of \d+\)$/);
        assert.match(cell("Duration"), /\d/);
        assert.equal(cell("Cost"), "–", "replies from files cost nothing");
    });
});
