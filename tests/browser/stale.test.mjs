// A server without anything, a server that goes away, and one that comes back.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { createInterface } from "node:readline";
import { facts, LIMIT_MS, start, stop, until, viewing, WIDTHS } from "./page.mjs";

let server;

/** What the caller's environment says is not about this server. */
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("NIGHTSHIFT_")));
env.XDG_CONFIG_HOME = `${facts.empty}/no-config`;

/** Starts a server on that address and gives it with the address that it says. */
async function serve(bind) {
    const child = spawn(facts.binary, ["--data-dir", facts.empty, "serve", "--bind", bind, "--no-worker"], {
        env,
        stdio: ["ignore", "pipe", "pipe"],
    });
    const address = new Promise((resolve, reject) => {
        for (const stream of [child.stdout, child.stderr]) {
            createInterface({ input: stream }).on("line", (line) => {
                const found = line.match(/http:\/\/\S+/);
                if (found) {
                    resolve(found[0]);
                }
            });
        }
        child.once("exit", (code) => reject(new Error(`the server ended with ${code}`)));
    });
    return { child, base: await address };
}

/** Ends it, without a word. */
async function end({ child }) {
    if (child.exitCode === null && child.signalCode === null) {
        const gone = once(child, "exit");
        child.kill("SIGKILL");
        await gone;
    }
}

before(async () => {
    await start();
    server = await serve("127.0.0.1:0");
});
after(async () => {
    await stop();
    await end(server);
});

test("where there is nothing yet, every page says so and how to begin", async () => {
    await viewing({ base: server.base }, async (view, page) => {
        for (const [path, words] of [
            ["/", /No campaign yet/],
            ["/attempts", /No attempt yet/],
            ["/tasks", /No task was worked on yet/],
            ["/models", /No model|no attempt|No attempt/],
            ["/compare", /Nothing is chosen yet/],
            ["/workers", /No worker yet|agents/],
            ["/search", /Everything that was written/],
            ["/search?q=softmax", /Nothing was found/],
            ["/health", /Server/],
        ]) {
            await view.reshape({ scheme: "light", width: WIDTHS.laptop });
            await view.go(path);
            assert.match(await page.locator("main").innerText(), words, path);
            assert.equal(await page.locator("h1").count(), 1, path);
            await view.stoodStill();
            await view.fits();
            assert.deepEqual(await view.faults(), [], path);
            await view.picture(`empty${path.replaceAll(/\W+/g, "-")}-light`);
            await view.reshape({ scheme: "dark", width: WIDTHS.phone });
            await view.fits();
        }
    });
});

test("a page without any event is read again at each heartbeat", async () => {
    await viewing({ base: server.base }, async (view, page) => {
        let readings = 0;
        page.on("request", (request) => {
            const isReading = new URL(request.url()).pathname === "/workers" && request.resourceType() !== "document";
            readings += isReading ? 1 : 0;
        });
        await view.go("/workers");
        // The first reading follows the opened stream.
        await until("the reading of a heartbeat", async () => readings >= 2);
    });
});

test("a reading that is refused is repeated until it succeeds", async () => {
    await viewing({ base: server.base }, async (view, page) => {
        view.allow(/^502 |status of 502/);
        await view.go("/");
        const link = page.locator(".link[data-link]");
        await link.filter({ hasText: /^live$/ }).waitFor();
        // The reading that follows the opened stream is over.
        await page.waitForTimeout(1_000);
        await page.route((url) => url.pathname === "/", (route) => route.fulfill({ status: 502, body: "" }), { times: 1 });
        await page.keyboard.press("r");
        await link.filter({ hasText: "not updated: the server answers 502" }).waitFor();
        await link.filter({ hasText: /^live$/ }).waitFor();
    });
});

test("a page whose session ended keeps what was written and asks to sign in", async () => {
    await viewing({ base: server.base }, async (view, page) => {
        await view.go("/");
        await page.locator(".link[data-link]").filter({ hasText: /^live$/ }).waitFor();
        await page.route((url) => url.pathname === "/", (route) =>
            route.fulfill({ status: 303, headers: { location: "/sign-in" } }));
        await page.keyboard.press("r");
        await page.locator(".link[data-link]").filter({ hasText: "not updated: sign in again" }).waitFor();
        assert.match(await page.locator("main").innerText(), /No campaign yet/);
    });
});

test("a page whose server is gone says since when it is old, and is live again when it is back", async () => {
    await viewing({ base: server.base }, async (view, page) => {
        view.allow(/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_NETWORK/);
        await view.go("/");
        await page.evaluate(() => {
            window.neverLoadedAgain = true;
        });
        const link = page.locator(".link[data-link]");
        await link.filter({ hasText: /^live$/ }).waitFor();
        await end(server);
        await link.filter({ hasText: /offline, as of \d\d:\d\d:\d\d UTC/ }).waitFor({ timeout: 2 * LIMIT_MS });
        assert.match(await page.locator("main").innerText(), /No campaign yet/, "what was known stays");
        assert.deepEqual(await view.faults(), []);
        await view.picture("offline-light");
        const since = await link.innerText();
        // It stays with the time at which it became old.
        await page.waitForEvent("requestfailed", {
            predicate: (request) => new URL(request.url()).pathname === "/",
            timeout: 2 * LIMIT_MS,
        });
        assert.equal(await link.innerText(), since);
        server = await serve(new URL(server.base).host);
        await link.filter({ hasText: /^live$/ }).waitFor({ timeout: 4 * LIMIT_MS });
        // What happens from now on is seen, in the page that was there all the time.
        const run = spawn(facts.binary, ["--data-dir", facts.empty, "run", facts.task, "--model", "scripted", "--new"], {
            env,
            stdio: "ignore",
        });
        await page.locator("main [data-row]").first().waitFor({ timeout: 2 * LIMIT_MS });
        run.kill("SIGKILL");
        assert.equal(await page.evaluate(() => window.neverLoadedAgain), true);
    });
});

test("a page whose server hangs is not called live, and is live again when the server goes on", async () => {
    await viewing({ base: server.base }, async (view, page) => {
        // What was asked just before is answered late, and says that it was.
        view.allow(/ERR_|^502 |status of 502/);
        await view.go("/");
        const link = page.locator(".link[data-link]");
        await link.filter({ hasText: /^live$/ }).waitFor();
        server.child.kill("SIGSTOP");
        try {
            // The page reports an outage after two missed heartbeats of 15 s.
            await link.filter({ hasText: /offline, as of \d\d:\d\d:\d\d UTC/ }).waitFor({ timeout: 6 * LIMIT_MS });
        } finally {
            server.child.kill("SIGCONT");
        }
        await link.filter({ hasText: /^live$/ }).waitFor({ timeout: 4 * LIMIT_MS });
    });
});
