// The number comes first: the strip and the tabs of an attempt, the forest plot and the table of a campaign.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { call, facts, start, stop, viewing, WIDTHS } from "./page.mjs";

before(start);
after(stop);

/** Screens of a laptop that an overview may take. */
const OVERVIEW_SCREENS = 2;
const SCREEN = 900;

/** Where something begins on the page, in pixels. */
const top = (locator) => locator.first().evaluate((part) => part.getBoundingClientRect().top + scrollY);

test("an attempt begins with its result in one strip, and its overview takes two screens", async () => {
    await viewing({}, async (view, page) => {
        await view.go(facts.pages.attempt);
        const strip = page.locator(".strip dt");
        assert.deepEqual((await strip.allInnerTexts()).slice(0, 5),
            ["Verdict", "Time of one call", "Speedup over the reference", "Speedup over the fastest baseline", "Bound"]);
        assert.match(await page.locator(".strip dd").nth(1).innerText(), /\d.*→.*\d/);
        assert.match(await page.locator(".strip dd").nth(2).innerText(), /\d+\.\d\d×/);
        assert.ok((await top(page.locator(".strip"))) < SCREEN / 3, "the strip is seen at once");
        assert.ok((await top(page.locator(".strip"))) < (await top(page.locator("nav.tabs"))));
        const height = await page.locator("main").evaluate((main) => main.getBoundingClientRect().bottom + scrollY);
        assert.ok(height <= OVERVIEW_SCREENS * SCREEN, `${height} px`);
        assert.equal(await page.locator(".listing, .verbatim").count(), 0, "sources and logs have their own tabs");
    });
});

test("tabs are links that work without scripts, and an address opens its tab", async () => {
    const sections = { Profile: "#tools", "Source and difference": "#source", Checks: "#timing", Conversation: "#conversation", Overview: "#result" };
    for (const javaScript of [true, false]) {
        await viewing({ javaScript }, async (view, page) => {
            await view.go(facts.pages.attempt);
            for (const [name, section] of Object.entries(sections)) {
                await page.locator("nav.tabs").getByRole("link", { name, exact: true }).click();
                await page.locator(`nav.tabs a[aria-current=page]`).getByText(name, { exact: true }).waitFor();
                assert.equal(await page.locator(`main ${section}`).count(), 1, `${name} shows ${section}`);
            }
            await view.go(`${facts.pages.attempt}?diff=parent`);
            assert.equal(await page.locator("nav.tabs a[aria-current=page]").innerText(), "Source and difference");
        });
    }
});

test("a finding of a search opens the source at its line", async () => {
    await viewing({}, async (view, page) => {
        await view.go("/search?q=ns_run&kind=source");
        const link = page.locator(".hits a[href*='tab=source#L']").first();
        const line = (await link.getAttribute("href")).split("#")[1];
        await link.click();
        await page.locator(`.listing #${line}`).waitFor();
    });
});

test("a campaign begins with its tasks: a forest plot that leads to the best attempts, and means over both baselines", async () => {
    await viewing({}, async (view, page) => {
        for (const path of [facts.pages["small-campaign"], facts.many.campaign]) {
            await view.reshape({ scheme: "light", width: WIDTHS.laptop });
            await view.go(path);
            const detail = await call(facts.base, null, "GET", path);
            const plot = page.locator("figure.chart").first();
            assert.match(await plot.locator("figcaption").innerText(), /Speedup by task/);
            const solved = detail.runs.filter((run) => run.digest.best_attempt !== null);
            const rows = plot.locator("a.interval");
            assert.equal(await rows.count(), Math.min(40, detail.runs.length));
            const estimates = solved.map((run) => run.digest.best_speedup.estimate);
            const best = solved[estimates.indexOf(Math.max(...estimates))];
            assert.equal(await rows.first().getAttribute("href"), `/runs/${best.id}/attempts/${best.digest.best_attempt}`);
            const mean = Math.exp(estimates.reduce((sum, estimate) => sum + Math.log(estimate), 0) / estimates.length);
            const means = page.locator("table.summary tr", { hasText: "Geometric mean" }).locator("td");
            const shown = Number.parseFloat(await means.first().innerText());
            assert.ok(Math.abs(shown - mean) < 0.011, `${shown}, not ${mean}`);
            assert.ok((await page.locator("table.summary tr", { hasText: "fast₁" }).first().locator("td").count()) === 2);
            const times = await page.locator("table.tasks tbody tr").first().locator("td").allInnerTexts();
            // However many attempts there are, times are those that were measured.
            assert.ok(times.filter((text) => /\d (ns|µs|ms|s)$/.test(text.trim())).length >= 2, `two times: ${times}`);
            assert.ok(times.some((text) => text.includes("×")), `a speedup: ${times}`);
            assert.equal(await page.getByText("≈: computed from the speedup").count(), 0);
            assert.ok((await top(plot)) < (await top(page.locator("table.tasks"))));
            assert.ok((await top(page.locator("table.tasks"))) < (await top(page.locator("#every-attempt"))), "results before progress");
            await view.reshape({ scheme: "dark", width: WIDTHS.phone });
            await view.fits();
        }
    });
});
