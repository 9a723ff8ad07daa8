// The picture of all attempts: drawn in the browser, in the colours of the theme.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { start, stop, viewing } from "./page.mjs";

before(start);
after(stop);

/** The colours that a picture is drawn in, as `r,g,b`. */
async function coloursOf(page) {
    return page.locator("canvas").evaluate((canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const found = new Set();
        for (let at = 0; at < data.length; at += 4) {
            if (data[at + 3] === 255) {
                found.add(data.slice(at, at + 3).join(","));
            }
        }
        return [...found];
    });
}

/** What the stylesheet makes of a colour of its own, as `r,g,b`. */
async function themed(page, name) {
    return page.evaluate((name) => {
        const probe = document.body.appendChild(document.createElement("span"));
        probe.style.color = `var(${name})`;
        const told = getComputedStyle(probe).color;
        probe.remove();
        return told.match(/\d+/g).join(",");
    }, name);
}

for (const scheme of ["light", "dark"]) {
    test(`attempts are drawn in the colours of the theme, ${scheme}`, async () => {
        await viewing({ scheme }, async (view, page) => {
            await view.go("/attempts");
            await page.getByText("All of them as dots").click();
            await page.getByText(/attempts by when they began/).waitFor();
            const drawn = await coloursOf(page);
            assert.ok(drawn.includes(await themed(page, "--good")), `the best of a run is not among ${drawn}`);
            await view.picture(`cloud-${scheme}`);
        });
    });
}

test("attempts are drawn over the fastest baseline, and over the reference when the reader chooses it", async () => {
    await viewing({ scheme: "light" }, async (view, page) => {
        const asked = [];
        page.on("request", (request) => {
            const address = new URL(request.url());
            if (address.pathname.endsWith("/attempts/points")) asked.push(address.searchParams.get("value"));
        });
        await view.go("/attempts");
        await page.getByText("All of them as dots").click();
        await page.getByText(/by their speedup over the fastest baseline/).waitFor();
        await page.getByRole("combobox", { name: "Speedup over" }).selectOption("the reference");
        await page.getByText(/by their speedup over the reference/).waitFor();
        assert.deepEqual(asked, ["speedup_over_fastest", "speedup"]);
    });
});
