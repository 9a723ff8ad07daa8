// Takes the pictures of the documentation into the folder in `NIGHTSHIFT_TEST_PICTURES`, the same ones every time.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { call, facts, start, stop, viewing, WIDTHS } from "./page.mjs";

/** The simulated time of the pictures: the morning after the campaign. */
const MORNING = "2025-01-01T08:30:00Z";
/** What all of them together may take. */
const MAX_BYTES = 1_500_000;
const skip = facts.pictures ? false : "no pictures are wanted: NIGHTSHIFT_TEST_PICTURES says where to";

before(start);
after(stop);

/** A picture as WebP, which the browser itself can write. */
async function webp(page, png) {
    const written = await page.evaluate(async (source) => {
        const picture = new Image();
        picture.src = source;
        await picture.decode();
        const canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [picture.width, picture.height];
        canvas.getContext("2d").drawImage(picture, 0, 0);
        return canvas.toDataURL("image/webp", 0.85);
    }, `data:image/png;base64,${png.toString("base64")}`);
    return Buffer.from(written.split(",")[1], "base64");
}

test("the pages have their pictures taken", { skip }, async () => {
    mkdirSync(facts.pictures, { recursive: true });
    const campaign = facts.many.campaign.split("/").at(-1);
    const { items } = await call(facts.base, null, "GET", `/attempts?campaign=${campaign}&sort=speedup&limit=200`);
    // Only programs for GPUs have a profile with everything.
    const { run, number } = items.find((item) => item.target === "cuda" && item.parent !== null);
    const other = items.find((item) => item.run === run && item.number !== number).number;
    const pages = {
        campaign: `/campaigns/${campaign}`,
        run: `/runs/${run}#attempts`,
        attempt: `/runs/${run}/attempts/${number}`,
        profile: `/runs/${run}/attempts/${number}?tab=profile`,
        difference: `/runs/${run}/attempts/${number}?diff=parent&view=split#source`,
        compare: `/compare?a=${run}/${number}&a=${run}/${other}`,
        attempts: "/attempts?sort=speedup",
    };
    let size = 0;
    await viewing({ scheme: "light", width: 1280, height: 840 }, async (view, page) => {
        await page.clock.setFixedTime(MORNING);
        const studio = await page.context().newPage();
        const keep = async (name) => {
            const bytes = await webp(studio, await page.screenshot());
            size += bytes.length;
            writeFileSync(join(facts.pictures, `${name}.webp`), bytes);
        };
        for (const [name, path] of Object.entries(pages)) {
            await view.reshape({ scheme: "light", width: 1280, height: 840 });
            await view.go(path);
            await keep(`${name}-light`);
            await view.reshape({ scheme: "dark" });
            await keep(`${name}-dark`);
        }
        for (const name of ["campaign", "attempt"]) {
            await view.reshape({ scheme: "light", width: WIDTHS.phone, height: 844 });
            await view.go(pages[name]);
            await keep(`${name}-phone`);
        }
    });
    assert.ok(size < MAX_BYTES, `${size} bytes are too many for a repository`);
});
