// Every page: it loads, it says what it is, it fits, everybody can read it, and it does what it must not in no way.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { facts, start, stop, viewing, WIDTHS } from "./page.mjs";

before(start);
after(stop);

for (const [name, path] of Object.entries(facts.pages)) {
    for (const scheme of ["light", "dark"]) {
        test(`${name} can be read, ${scheme}`, async () => {
            await viewing({ scheme }, async (view, page) => {
                const response = await view.go(path);
                assert.equal(response.status(), 200);
                assert.notEqual((await page.locator("h1").first().innerText()).trim(), "");
                assert.match(await page.title(), /Nightshift/);
                assert.deepEqual(await view.faults(), []);
                assert.ok((await view.overflow()) <= 0, `${await view.overflow()} px too wide`);
                await view.picture(`${name}-${scheme}`);
            });
        });
    }

    test(`${name} fits a phone`, async () => {
        await viewing({ width: WIDTHS.phone, height: 844 }, async (view) => {
            await view.go(path);
            assert.ok((await view.overflow()) <= 0, `${await view.overflow()} px too wide`);
            await view.picture(`${name}-phone`);
        });
    });

    test(`${name} can be read without scripts`, async () => {
        await viewing({ javaScript: false }, async (view, page) => {
            await view.go(path);
            assert.notEqual((await page.locator("main").innerText()).trim(), "");
            assert.equal(await page.locator("h1").count(), 1);
        });
    });
}

test("what a model wrote is shown and never runs", async () => {
    for (const path of [facts.pages.run, facts.pages.attempt]) {
        await viewing({}, async (view, page) => {
            await view.go(path);
            assert.doesNotMatch(await page.title(), /taken over/);
        });
    }
});

test("what does not exist says so, in words and as a status", async () => {
    await viewing({}, async (view, page) => {
        view.allow(/404/);
        const response = await view.go(`/runs/run_${"0".repeat(32)}`);
        assert.equal(response.status(), 404);
        assert.match(await page.locator("main").innerText(), /run\.not_found/);
        await view.picture("error-light");
    });
});

test("a fault would be seen", async () => {
    await viewing({}, async (view, page) => {
        await view.go(facts.pages.campaigns);
        await page.evaluate(() => {
            document.querySelector("main").append(document.createElement("button"));
            const wide = document.createElement("div");
            wide.style.width = "9000px";
            wide.textContent = "wide";
            document.body.append(wide);
        });
        assert.notDeepEqual(await view.faults(), []);
        assert.ok((await view.overflow()) > 0);
    });
});
