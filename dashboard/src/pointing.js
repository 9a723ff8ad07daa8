// What a pointer does with drawings: drag over a part to look closer, point at a dot to learn what it is. Whatever is reached
// by pointing is reached by links and lists of the page, too. At the end: what has to happen before the program of the pages
// is there.

// A drawing says what can be looked at closer by `data-brush="FROM TO LEFT RIGHT STEP"`: values at its edges, where in the
// drawing those edges are, and to what values are rounded. The part that was chosen is `from` and `to` of the address.
(() => {
  const SHORTEST = 5;
  let drag = null;
  let swallows = false;
  const within = (event) => (event.target instanceof Element ? event.target.closest("[data-brush]") : null);
  const share = (x) => {
    const seen = drag.drawing.getBoundingClientRect();
    const at = ((x - seen.left) / seen.width) * drag.drawing.viewBox.baseVal.width;
    return Math.min(1, Math.max(0, (at - drag.left) / (drag.right - drag.left)));
  };
  const end = () => {
    drag?.shade.remove();
    drag = null;
  };
  addEventListener("pointerdown", (event) => {
    end();
    swallows = false;
    const part = within(event);
    // A finger moves the page.
    if (!part || event.button !== 0 || event.pointerType === "touch") return;
    const [from, to, left, right, step] = part.dataset.brush.split(" ").map(Number);
    const drawing = part.closest("svg");
    const shade = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    shade.setAttribute("class", "window");
    shade.setAttribute("height", drawing.viewBox.baseVal.height);
    part.append(shade);
    drag = { drawing, shade, from, to, left, right, step, began: event.clientX };
    event.preventDefault();
  });
  addEventListener("pointermove", (event) => {
    if (!drag) return;
    const [one, other] = [share(drag.began), share(event.clientX)].sort((a, b) => a - b);
    const width = drag.right - drag.left;
    drag.shade.setAttribute("x", drag.left + one * width);
    drag.shade.setAttribute("width", (other - one) * width);
  });
  addEventListener("pointerup", (event) => {
    if (drag && Math.abs(event.clientX - drag.began) >= SHORTEST) {
      // What began as a drag is no click on the link where it ended.
      swallows = true;
      const [one, other] = [share(drag.began), share(event.clientX)].sort((a, b) => a - b);
      const value = (at) => (Math.round((drag.from + at * (drag.to - drag.from)) / drag.step) * drag.step).toFixed(3);
      const address = new URL(location.href);
      address.searchParams.set("from", Number(value(one)));
      address.searchParams.set("to", Number(value(other)));
      address.hash = drag.drawing.closest("[id]")?.id ?? "";
      location.assign(address);
    }
    end();
  });
  addEventListener("pointercancel", end);
  // Where Escape means something else: what is asked is folded, a field is left.
  const TAKEN = "input, textarea, select, [contenteditable], details.asks[open]";
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.isComposing) return;
    if (drag) {
      end();
      return;
    }
    const isTaken = document.querySelector("dialog[open]") || (event.target instanceof Element && event.target.closest(TAKEN));
    const address = new URL(location.href);
    const isPart = address.searchParams.has("from") || address.searchParams.has("to");
    const drawing = document.querySelector("[data-brush]");
    if (isTaken || !isPart || !drawing) return;
    address.searchParams.delete("from");
    address.searchParams.delete("to");
    address.hash = drawing.closest("[id]")?.id ?? "";
    location.assign(address);
  });
  addEventListener("dragstart", (event) => within(event) && event.preventDefault());
  addEventListener("click", (event) => swallows && within(event) && event.preventDefault(), true);
})();

// The picture of all attempts is drawn by the program (`browser/cloud.rs`, where places come from); its points are read here
// when the pointer first enters it.
(() => {
  const [HEADER, POINT, LEFT, EDGE, REACH] = [32, 16, 48, 10, 12];
  let cloud = null;
  let pointed = null;
  const read = async (address, canvas) => {
    const answer = await fetch(address);
    if (!answer.ok) return null;
    const bytes = new DataView(await answer.arrayBuffer());
    const count = Math.floor((bytes.byteLength - HEADER) / POINT);
    const [at, speedup] = [new Float64Array(count), new Float32Array(count)];
    let [low, high, length] = [0.5, 2, 1];
    for (let n = 0; n < count; n += 1) {
      const offset = HEADER + n * POINT;
      at[n] = bytes.getUint32(offset + 4, true) * 100;
      speedup[n] = bytes.getFloat32(offset + 8, true);
      length = Math.max(length, at[n]);
      if (speedup[n] > 0 && Number.isFinite(speedup[n])) {
        low = Math.min(low, speedup[n]);
        high = Math.max(high, speedup[n]);
      }
    }
    low = Math.log(Math.max(low, 1e-3));
    high = Math.log(Math.min(high, 1e6));
    const { width, height } = canvas;
    const x = (n) => LEFT + (at[n] / length) * (width - LEFT - EDGE) + 1;
    const y = (n) => {
      if (!(speedup[n] > 0 && Number.isFinite(speedup[n]))) return height - EDGE + 1;
      const part = Math.min(1, Math.max(0, (Math.log(speedup[n]) - low) / (high - low)));
      return height - 3 * EDGE - part * (height - 4 * EDGE) + 1;
    };
    return { address, bytes, count, x, y };
  };
  const nearest = (points, x, y) => {
    let [found, least] = [-1, REACH * REACH];
    for (let n = 0; n < points.count; n += 1) {
      const dx = points.x(n) - x;
      if (dx * dx > least) continue;
      const dy = points.y(n) - y;
      if (dx * dx + dy * dy <= least) [found, least] = [n, dx * dx + dy * dy];
    }
    return found;
  };
  const forget = () => {
    pointed?.words.remove();
    pointed?.canvas.removeAttribute("data-pointed");
    pointed = null;
  };
  const ask = async (points, n) => {
    const offset = HEADER + n * POINT;
    const key = `${points.bytes.getUint32(offset, true)}/${points.bytes.getUint16(offset + 12, true)}`;
    const answer = await fetch(`/api/v1/attempts/at/${key}`);
    return answer.ok ? answer.json() : null;
  };
  const point = async (canvas, event) => {
    const island = canvas.closest("leptos-island");
    const value = island.querySelector("select").value;
    const address = `/api/v1/attempts/points?value=${value}&${JSON.parse(island.dataset.props).query}`;
    if (cloud?.address !== address) cloud = { address, points: read(address, canvas).catch(() => null) };
    const points = await cloud.points;
    if (!points) return;
    const [x, y] = [event.offsetX, event.offsetY];
    const n = nearest(points, (x / canvas.clientWidth) * canvas.width, (y / canvas.clientHeight) * canvas.height);
    if (n === pointed?.n) return;
    forget();
    if (n < 0) return;
    const words = document.createElement("p");
    words.className = "pointed";
    words.setAttribute("aria-hidden", "true");
    const mine = { n, canvas, words, href: null };
    pointed = mine;
    const row = await ask(points, n).catch(() => null);
    if (!row || pointed !== mine) return;
    mine.href = `/runs/${row.run}/attempts/${row.number}`;
    const over = (speedup, baseline) => (speedup ? `, ${speedup.estimate.toFixed(2)}× over ${baseline}` : "");
    const speedups = over(row.speedup, "the reference") + over(row.speedup_over_fastest, "the fastest baseline");
    words.textContent = `${row.task}, attempt ${row.number}: ${row.outcome.replaceAll("_", " ")}${speedups}`;
    canvas.setAttribute("data-pointed", "");
    canvas.after(words);
    words.style.left = `${Math.min(x + 12, canvas.clientWidth - words.offsetWidth)}px`;
    words.style.top = `${Math.min(y + 14, canvas.clientHeight - words.offsetHeight)}px`;
  };
  addEventListener("pointermove", (event) => {
    const canvas = event.target instanceof Element ? event.target.closest("figure.cloud canvas") : null;
    if (canvas) point(canvas, event);
    else forget();
  });
  addEventListener("click", (event) => {
    if (pointed?.href && event.target === pointed.canvas) location.assign(pointed.href);
  });
})();

// `/` leads to the search with this behind its address (`browser/keyboard.rs`). The field has the focus before the program is
// there: what is typed next is meant for it.
(() => {
  const FRAGMENT = "#words";
  const begin = () => {
    const field = location.hash === FRAGMENT ? document.querySelector("[data-search]") : null;
    if (!field) return;
    history.replaceState(history.state, "", location.pathname + location.search);
    field.focus();
  };
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", begin, { once: true });
  else begin();
})();
