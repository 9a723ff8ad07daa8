// A page of the dashboard in a fresh context of the browser, which keeps account of what must not happen.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Longest wait for anything, in milliseconds. */
export const LIMIT_MS = 45_000;
/** Widths that people have: a phone, a laptop, a wide screen. */
export const WIDTHS = { phone: 390, laptop: 1400, wide: 2560 };

/** What is tolerated of the movement of a page while it loads: the measure of browsers, of which 0.1 counts as good. */
const MAX_SHIFT = 0.05;

/** What the caller says about the server: addresses, ids, and where pictures go. */
export const facts = JSON.parse(process.env.NIGHTSHIFT_BROWSER_FACTS ?? "null");
if (facts === null) {
    throw new Error("run by `cargo test --test browser`, which starts a server and says where it is");
}

let browser;

/** The browser: one for all tests of a file. */
export async function start() {
    assert.ok(existsSync(facts.browser), `no browser at ${facts.browser}`);
    browser = await chromium.launch({
        executablePath: facts.browser,
        args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync"],
    });
}

export async function stop() {
    await browser?.close();
}

/** A call of the API, with a token when it is given. */
export async function call(base, token, method, path, body) {
    const response = await fetch(new URL(`/api/v1${path}`, base), {
        method,
        headers: {
            ...(token ? { authorization: `Bearer ${token}` } : {}),
            ...(body === undefined ? {} : { "content-type": "application/json" }),
        },
        body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
    return text === "" ? null : JSON.parse(text);
}

/** Asks again and again until something holds. */
export async function until(what, holds) {
    const began = Date.now();
    for (;;) {
        if (await holds()) {
            return;
        }
        assert.ok(Date.now() - began < 4 * LIMIT_MS, `timed out: ${what}`);
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
}

/** A view of the pages: `leave` ends it and fails if anything happened that must not. */
export class View {
    #context;
    #wrong = [];
    #allowed = [];
    #base;
    #javaScript;

    static async open({ scheme = "light", width = WIDTHS.laptop, height = 900, javaScript = true, base = facts.base } = {}) {
        const view = new View();
        view.#base = base;
        view.#javaScript = javaScript;
        view.#context = await browser.newContext({
            viewport: { width, height },
            colorScheme: scheme,
            reducedMotion: "reduce",
            javaScriptEnabled: javaScript,
        });
        view.#context.setDefaultTimeout(LIMIT_MS);
        await view.#context.addInitScript(() => {
            window.moved = 0;
            const count = (list) => list.getEntries().forEach((entry) => {
                window.moved += entry.hadRecentInput ? 0 : entry.value;
            });
            new PerformanceObserver(count).observe({ type: "layout-shift", buffered: true });
        });
        const page = await view.#context.newPage();
        page.on("pageerror", (error) => view.#wrong.push(`a script failed: ${error.message}`));
        page.on("console", (message) => {
            if (message.type() === "error" || /Content.Security.Policy/i.test(message.text())) {
                view.#wrong.push(`the console says: ${message.text()}`);
            }
        });
        page.on("request", (request) => {
            const url = new URL(request.url());
            if (url.protocol.startsWith("http") && url.host !== new URL(base).host) {
                view.#wrong.push(`a request to ${url.host}, which is not the server`);
            }
        });
        page.on("response", (response) => {
            if (response.status() >= 400) {
                view.#wrong.push(`${response.status()} for ${response.url()}`);
            }
        });
        view.page = page;
        return view;
    }

    /** What happens on purpose in this test is no fault. */
    allow(pattern) {
        this.#allowed.push(pattern);
    }

    /** Goes to a path, and waits until its islands are alive. */
    async go(path) {
        const response = await this.page.goto(new URL(path, this.#base).href, { waitUntil: "load" });
        if (this.#javaScript) {
            await this.awake();
        }
        return response;
    }

    /** Waits until the program of the page runs: a click or a key before that is lost. */
    async awake() {
        await this.page.locator("html[data-awake]").waitFor({ state: "attached" });
    }

    /** Serious faults of accessibility, by axe-core. */
    async faults() {
        // Given as a function of the debugger, not as a script of the page: the policy allows no such script.
        const session = await this.#context.newCDPSession(this.page);
        await session.send("Runtime.evaluate", { expression: axeSource });
        const { result, exceptionDetails } = await session.send("Runtime.evaluate", {
            expression: "axe.run(document, { resultTypes: ['violations'] }).then(found => JSON.stringify(found.violations" +
                ".filter(v => v.impact === 'serious' || v.impact === 'critical')" +
                ".map(v => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map(n => n.html).join(' | ')}`)))",
            awaitPromise: true,
            returnByValue: true,
        });
        assert.equal(exceptionDetails, undefined, JSON.stringify(exceptionDetails));
        return JSON.parse(result.value);
    }

    /** Another window, other colours, or paper. */
    async reshape({ scheme, width, height = 900, media = "screen" }) {
        if (width !== undefined) {
            await this.page.setViewportSize({ width, height });
        }
        await this.page.emulateMedia({ ...(scheme === undefined ? {} : { colorScheme: scheme }), media });
    }

    /** Holds that what was read first did not move away while the rest was loaded. */
    async stoodStill() {
        // Two frames later everything that woke up has been laid out.
        await this.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
        const moved = await this.page.evaluate(() => window.moved);
        assert.ok(moved < MAX_SHIFT, `the page moved by ${moved} while it loaded`);
    }

    /** Checks that the page does not scroll sideways. */
    async fits() {
        const overflow = await this.overflow();
        if (overflow > 0) {
            const widest = await this.page.evaluate(() => {
                const limit = document.documentElement.clientWidth;
                const scrolls = (element) => element.closest(".scroll, .plot-scroll, pre, .listing, .diff, .chips, .contents, .sections");
                return [...document.body.querySelectorAll("*")]
                    .filter((element) => element.getBoundingClientRect().right > limit + 1 && !scrolls(element))
                    .slice(0, 3)
                    .map((element) => element.outerHTML.slice(0, 200));
            });
            assert.fail(`${overflow} px too wide: ${widest.join(" | ")}`);
        }
    }

    /** How much wider than the window the page is, in pixels; it should be 0. */
    async overflow() {
        return this.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    }

    /** Keeps a picture of what a test looks at, when pictures are wanted; those of the documentation are others. */
    async picture(name) {
        if (facts.pictures) {
            const folder = join(facts.pictures, "tests");
            mkdirSync(folder, { recursive: true });
            await this.page.screenshot({ path: join(folder, `${name}.png`), fullPage: false });
        }
    }

    async leave() {
        await this.#context.close();
        const wrong = this.#wrong.filter((line) => !this.#allowed.some((pattern) => pattern.test(line)));
        assert.deepEqual(wrong, []);
    }
}

/** Opens a view, lets a test have it, and leaves it. */
export async function viewing(options, body) {
    const view = await View.open(options);
    try {
        await body(view, view.page);
    } catch (error) {
        const shown = await view.page.locator("main").innerText({ timeout: 1_000 }).catch(() => "nothing");
        let told = `${error.message}\nat ${view.page.url()}, which shows: ${shown.slice(0, 1_500)}`;
        await view.leave().catch((also) => {
            told += `\nand: ${also.message}`;
        });
        throw new Error(told, { cause: error });
    }
    await view.leave();
}
