// Every page: it loads, has a title, fits the window, is accessible, and violates no security rule.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { facts, start, stop, viewing, WIDTHS } from "./page.mjs";

before(start);
after(stop);

for (const [name, path] of Object.entries(facts.pages)) {
    test(`${name} can be read in light, in dark, on a phone and on paper`, async () => {
        await viewing({ scheme: "light" }, async (view, page) => {
            const response = await view.go(path);
            assert.equal(response.status(), 200);
            assert.equal(await page.locator("h1").count(), 1);
            assert.notEqual((await page.locator("h1").innerText()).trim(), "");
            assert.match(await page.title(), /Nightshift/);
            await view.stoodStill();
            await view.fits();
            const width = await page.locator("main").evaluate((main) => main.getBoundingClientRect().width);
            assert.ok(width >= 0.9 * WIDTHS.laptop, `the content takes ${width} px alone`);
            assert.deepEqual(await view.faults(), []);
            await view.picture(`${name}-light`);
            await view.reshape({ scheme: "dark" });
            assert.deepEqual(await view.faults(), []);
            await view.picture(`${name}-dark`);
            await view.reshape({ scheme: "dark", media: "print" });
            assert.equal(await page.locator("nav.sections").isVisible(), false, "a menu on paper");
            assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(255, 255, 255)");
            await view.reshape({ scheme: "light", media: "screen", width: WIDTHS.phone, height: 844 });
            await view.fits();
            await view.picture(`${name}-phone`);
        });
    });
}

test("every page can be read without scripts", async () => {
    await viewing({ javaScript: false }, async (view, page) => {
        for (const [name, path] of Object.entries(facts.pages)) {
            await view.go(path);
            assert.notEqual((await page.locator("main").innerText()).trim(), "", name);
            assert.equal(await page.locator("h1").count(), 1, name);
        }
    });
});

test("what a model wrote is shown and never runs", async () => {
    await viewing({}, async (view, page) => {
        for (const path of [facts.pages.run, facts.pages.attempt]) {
            await view.go(path);
            assert.doesNotMatch(await page.title(), /taken over/);
        }
    });
});

const NOT_THERE = "0".repeat(32);

test("what does not exist is told in words and as a status, with a way on", async () => {
    await viewing({}, async (view, page) => {
        view.allow(/40[04]/);
        for (const [path, status, code] of [
            ["/nowhere", 404, "page.not_found"],
            [`/runs/run_${NOT_THERE}`, 404, "run.not_found"],
            ["/runs/..%2f..%2fetc", 404, "page.not_found"],
            [`/campaigns/cmp_${NOT_THERE}`, 404, "campaign.not_found"],
            [`${facts.pages.run}/attempts/9999`, 404, "page.not_found"],
            ["/compare?a=nothing", 404, "page.not_found"],
            ["/attempts?sort=colour", 400, "request.invalid_query"],
            ["/attempts?before=nowhere", 400, "request."],
        ]) {
            await view.reshape({ scheme: "light", width: WIDTHS.laptop });
            const response = await view.go(path);
            assert.equal(response.status(), status, path);
            assert.ok((await page.locator("main").innerText()).includes(code), `${path} names ${code}`);
            assert.equal(await page.locator("h1").count(), 1);
            assert.ok((await page.locator("nav.sections a").count()) > 4, "the way on");
            assert.deepEqual(await view.faults(), []);
            await view.picture(`error-${code}-light`);
            await view.reshape({ scheme: "dark", width: WIDTHS.phone });
            await view.fits();
        }
    });
});

test("a fault would be seen", async () => {
    await viewing({}, async (view, page) => {
        // One that is over: another would be read anew, without what is put into it.
        await view.go(facts.pages.run);
        await page.evaluate(() => {
            document.querySelector("main").append(document.createElement("button"));
            const wide = document.createElement("div");
            wide.style.width = "9000px";
            wide.style.height = "500px";
            wide.textContent = "wide";
            document.body.prepend(wide);
        });
        assert.notDeepEqual(await view.faults(), []);
        assert.ok((await view.overflow()) > 0);
        await assert.rejects(() => view.fits());
        await assert.rejects(() => view.stoodStill());
    });
});
