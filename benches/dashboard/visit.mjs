// Visits pages in a browser and tells how long each took until it could be used. A line of JSON on standard input says
// what to visit, a line on standard output for each visit says what was found.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// The packages of the tests of the pages.
const require = createRequire(new URL("../../tests/browser/page.mjs", import.meta.url));
const { chromium } = require("playwright-core");

const POLL_MS = 10;

/** Waits until an expression holds on the page; asked by the debugger, as policies of pages forbid evaluating text. */
async function holds(session, expression, limit_ms) {
    const end = performance.now() + limit_ms;
    while (performance.now() < end) {
        // Between two documents there is nobody to answer.
        const answer = await session.send("Runtime.evaluate", { expression, returnByValue: true }).catch(() => null);
        if (answer?.result?.value === true) {
            return;
        }
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
    throw new Error(`Timeout: not ready within ${limit_ms} ms`);
}

/**
 * Takes the time within the page, from the next click to the frame in which an expression holds: what drives the mouse
 * looks for the place to click and waits until it rests, which is no part of what somebody who clicks waits for.
 */
const stopwatch = (then) => `addEventListener("click", ({ timeStamp }) => {
    const look = () => {
        if (${then}) {
            requestAnimationFrame(() => setTimeout(() => (window.shownAfterMs = performance.now() - timeStamp)));
        } else {
            requestAnimationFrame(look);
        }
    };
    look();
}, { capture: true, once: true })`;

/** Visits one page in a fresh context; `until` is an expression that holds once the page can be used. */
async function visit(browser, { name, url, until, click, then, limit_ms, picture }) {
    const context = await browser.newContext({ viewport: { width: 1400, height: 900 } });
    const page = await context.newPage();
    const session = await context.newCDPSession(page);
    await session.send("Network.enable");
    await session.send("Performance.enable");
    const found = { name, bytes: 0, requests: 0, errors: 0, foreign: [] };
    session.on("Network.loadingFinished", ({ encodedDataLength }) => {
        found.bytes += encodedDataLength;
    });
    page.on("pageerror", () => (found.errors += 1));
    page.on("request", (request) => {
        found.requests += 1;
        const { host, protocol } = new URL(request.url());
        if (protocol.startsWith("http") && host !== new URL(url).host && !found.foreign.includes(host)) {
            found.foreign.push(host);
        }
    });
    const began = performance.now();
    try {
        await page.goto(url, { waitUntil: "commit", timeout: limit_ms });
        await holds(session, until, limit_ms);
        found.ms = performance.now() - began;
        if (click !== undefined) {
            await session.send("Runtime.evaluate", { expression: stopwatch(then) });
            await page.locator(click).first().click();
            await holds(session, "window.shownAfterMs !== undefined", limit_ms);
            const shown = await session.send("Runtime.evaluate", { expression: "window.shownAfterMs", returnByValue: true });
            found.after_click_ms = shown.result.value;
        }
    } catch (error) {
        found.failed = String(error.message).split("\n")[0];
    }
    const { metrics } = await session.send("Performance.getMetrics");
    const metric = (name) => metrics.find((entry) => entry.name === name)?.value;
    found.nodes = metric("Nodes");
    found.heap_mb = metric("JSHeapUsedSize") / 1e6;
    if (picture !== undefined) {
        await page.screenshot({ path: picture, timeout: limit_ms }).catch(() => {});
    }
    await context.close();
    return found;
}

/** How long after a call was sent a page that is open shows what it changed. */
async function follow(browser, { name, url, token, calls, limit_ms }) {
    const context = await browser.newContext({ viewport: { width: 1400, height: 900 } });
    const page = await context.newPage();
    await page.goto(url, { waitUntil: "load", timeout: limit_ms });
    await page.locator("html[data-awake]").waitFor({ state: "attached", timeout: limit_ms });
    // Who calls is warm: loading its own client and opening the first connection are no part of what is measured.
    await fetch(new URL("/api/v1/health", url));
    const found = { name, sent_to_seen_ms: [], answered_to_seen_ms: [] };
    for (const { call, body, shows } of calls) {
        // Watched by the page itself: a poll from outside would add its own interval.
        const seen = page.evaluate(
            ({ shows, limit_ms }) => new Promise((resolve, reject) => {
                const holds = () => new RegExp(shows).test((document.querySelector("main h1 + p .tag")?.innerText ?? ""));
                if (holds()) {
                    reject(new Error(`the page shows ${shows} already`));
                }
                const observer = new MutationObserver(() => {
                    if (holds()) {
                        observer.disconnect();
                        requestAnimationFrame(() => resolve(performance.timeOrigin + performance.now()));
                    }
                });
                observer.observe(document.body, { childList: true, subtree: true, characterData: true });
                setTimeout(() => reject(new Error(`the page never showed ${shows}`)), limit_ms);
            }),
            { shows, limit_ms },
        );
        // The page has to watch before anything changes.
        await page.evaluate(() => 0);
        const sent = performance.timeOrigin + performance.now();
        const answer = await fetch(call, {
            method: "POST",
            headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
            body: JSON.stringify(body),
        });
        const answered = performance.timeOrigin + performance.now();
        if (!answer.ok) {
            throw new Error(`${call}: ${answer.status} ${await answer.text()}`);
        }
        const at = await seen;
        found.sent_to_seen_ms.push(at - sent);
        found.answered_to_seen_ms.push(at - answered);
    }
    await context.close();
    return found;
}

const browser = await chromium.launch({
    executablePath: process.argv[2],
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync"],
});
for await (const line of createInterface({ input: process.stdin })) {
    const wish = JSON.parse(line);
    let found;
    try {
        found = await (wish.calls === undefined ? visit : follow)(browser, wish);
    } catch (error) {
        found = { name: wish.name, failed: String(error.message).split("\n")[0] };
    }
    process.stdout.write(`${JSON.stringify(found)}\n`);
}
await browser.close();
