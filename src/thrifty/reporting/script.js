"use strict";
(() => {
  document.documentElement.classList.add("js");
  /* All texts come from the page; the script formats no number. */
  const shown = JSON.parse(document.getElementById("facts").textContent);
  const { marked, full, rivals, constant, texts, details, efficient } = shown;
  const { deployed = null, certified = null, "least total cost": least = null } = marked;
  const marks = (place) => Object.keys(marked).filter((name) => marked[name] === place);
  /* Points with a name; one that is both deployed and certified is one entry. */
  const places = [...new Set(Object.values(marked))];
  const byId = (id) => document.getElementById(id);
  let current = shown.start;

  /* Text only ever enters the page as text. */
  const make = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
  const draw = (tag, attributes = {}, ...children) =>
    filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  const filled = (element, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const say = (id, text) => { byId(id).textContent = text; };
  const within = (budget) => {
    let best = efficient[0];
    for (const place of efficient) if (shown.budget[place] <= budget * (1 + 1e-9)) best = place;
    return best;
  };

  /* The picture. */
  const dashes = ["7 4", "2 3", "10 3 2 3", "14 4", "1 2 6 2"];
  const shapes = [
    (r) => `M${-r} ${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
    (r) => `M0 ${-1.3 * r}L${1.2 * r} ${r}H${-1.2 * r}z`,
    (r) => `M0 ${-1.35 * r}L${1.35 * r} 0L0 ${1.35 * r}L${-1.35 * r} 0z`,
    (r) => `M0 ${1.3 * r}L${1.2 * r} ${-r}H${-1.2 * r}z`,
    (r) => `M${-r} ${-r}L${r} ${r}M${r} ${-r}L${-r} ${r}`,
  ];
  const seal = shapes[2];
  const star = Array.from({ length: 10 }, (_, k) => {
    const [angle, radius] = [(Math.PI * k) / 5 - Math.PI / 2, k % 2 ? 4 : 9.5];
    return `${(radius * Math.cos(angle)).toFixed(2)},${(radius * Math.sin(angle)).toFixed(2)}`;
  }).join(" ");
  /* Points chosen on other rows go up and down a little here: each is a dot, the line leaves out those that crowd. */
  const room = 0.012 * shown.axes.x.ends[1];
  const byCost = [...efficient].sort((a, b) => shown.cost[a] - shown.cost[b])
    .reduce((kept, p) => (kept.length && shown.cost[p] - shown.cost[kept[kept.length - 1]] < room ? kept : [...kept, p]), []);
  let moving = null;
  const sign = (place) => [
    ...(place === least ? [draw("path", { class: "lowest", d: shapes[3](marks(place).length > 1 ? 12 : 7) })] : []),
    ...(place === certified ? [draw("path", { class: "seal", d: seal(place === deployed ? 11 : 6) })] : []),
    ...(place === deployed ? [draw("circle", { class: "pin", r: 6.5 })] : []),
  ];

  const paint = () => {
    const holder = byId("chart");
    const width = Math.max(260, Math.round(holder.clientWidth || 640));
    const height = Math.round(Math.min(500, Math.max(300, width * 0.7)));
    const box = { left: 54, right: width - 14, top: (deployed === null ? 12 : 30) + (shown.corner ? 16 : 0), bottom: height - 46 };
    /* Where the majority class is far below, its line gets a strip of its own under a break of the axis. */
    const { in_view: inView, strip } = constant;
    box.foot = box.bottom - (strip ? 44 : 0);
    const [[x0, x1], [y0, y1]] = [shown.axes.x.ends, shown.axes.y.ends];
    const x = (cost) => box.left + ((cost - x0) / (x1 - x0)) * (box.right - box.left);
    const y = (accuracy) => box.foot - ((accuracy - y0) / (y1 - y0)) * (box.foot - box.top);
    const at = (cost, accuracy) => `${x(cost).toFixed(1)},${y(accuracy).toFixed(1)}`;
    /* Money between two points that lie apart buys only the cheaper one, unless it is spent: a step, not a slope. */
    const line = (pairs) => pairs.flatMap(([cost, accuracy], k) =>
      !shown.is_mixed && k > 0 && cost - pairs[k - 1][0] > 0.03 * (x1 - x0) ? [at(cost, pairs[k - 1][1]), at(cost, accuracy)] : [at(cost, accuracy)]);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-labelledby": "chart-name" });
    svg.append(draw("title", { id: "chart-name" }, shown.name));
    if (shown.corner) svg.append(draw("text", { x: 4, y: 12 }, shown.corner));
    const clip = draw("clipPath", { id: "inside" },
      draw("rect", { x: box.left - 6, y: box.top - 6, width: box.right - box.left + 12, height: box.foot - box.top + 6 }));
    svg.append(draw("defs", {}, clip));
    for (const [value, text] of shown.axes.y.ticks[Math.min(8, Math.max(4, Math.ceil(height / 62)))]) {
      const level = y(value);
      svg.append(draw("line", { class: "grid", x1: box.left, x2: box.right, y1: level, y2: level }));
      svg.append(draw("text", { x: box.left - 8, y: level + 4, "text-anchor": "end" }, text));
    }
    for (const [value, text] of shown.axes.x.ticks[Math.min(8, Math.max(3, Math.floor(width / 75)))]) {
      svg.append(draw("line", { class: "axis", x1: x(value), x2: x(value), y1: box.bottom, y2: box.bottom + 5 }));
      svg.append(draw("text", { x: x(value), y: box.bottom + 19, "text-anchor": "middle" }, text));
    }
    svg.append(draw("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
    svg.append(draw("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, shown.across));
    const inside = draw("g", { "clip-path": "url(#inside)" });
    const level = inView ? y(constant.score) : box.bottom - 11;
    if (inView || strip) svg.append(draw("line", { class: "majority", id: "majority", x1: box.left, x2: box.right, y1: level, y2: level }));
    if (strip) svg.append(
      draw("text", { x: box.left - 8, y: level + 4, "text-anchor": "end" }, constant.tick),
      draw("path", { class: "axis", d: `M${box.left - 7} ${box.foot + 12}l14 -6m-14 11l14 -6` }));
    inside.append(draw("polygon", { class: "band",
      points: [...line(byCost.map((p) => [shown.cost[p], shown.low[p]])),
        ...line(byCost.map((p) => [shown.cost[p], shown.high[p]])).reverse()].join(" ") }));
    rivals.forEach((rival, k) => {
      const order = rival.cost.map((_, i) => i).sort((a, b) => rival.cost[a] - rival.cost[b]);
      inside.append(draw("polyline", { class: `line r${k % 5}`, "stroke-dasharray": dashes[k % 5],
        points: line(order.map((i) => [rival.cost[i], rival.score[i]])).join(" ") }));
      const every = Math.max(1, Math.floor(order.length / 7));
      order.filter((_, i) => i % every === 0 || i === order.length - 1).forEach((i) => inside.append(draw("path", {
        class: `symbol r${k % 5}`, d: shapes[k % 5](3.6), transform: `translate(${at(rival.cost[i], rival.score[i])})` })));
    });
    inside.append(draw("polyline", { class: "line main",
      points: line(byCost.map((p) => [shown.cost[p], shown.score[p]])).join(" ") }));
    for (const p of efficient)
      inside.append(draw("circle", { class: "dot", r: efficient.length > 48 ? 1.7 : 2.6, cx: x(shown.cost[p]), cy: y(shown.score[p]) }));
    svg.append(inside);
    if (full) {
      svg.append(draw("polygon", { class: "star", points: star, transform: `translate(${at(full[0], full[1])})` }));
      const above = y(full[1]) - 26 > 0;
      svg.append(draw("text", { class: "label", "text-anchor": "end", x: Math.min(x(full[0]) + 12, box.right),
        y: y(full[1]) + (above ? -15 : 25) }, shown.full_name));
    }
    const drop = draw("line", { class: "drop", x1: 0, x2: 0, y1: box.top, y2: box.bottom });
    const here = draw("g", { class: "here", id: "here" }, draw("circle", { class: "rim", r: 10.5 }), draw("circle", { r: 10.5 }));
    svg.append(drop, here);
    /* The deployed point flies a flag above the picture, where no line can run into it. */
    for (const place of places) {
      const px = x(shown.cost[place]);
      const words = marks(place).join(", ");
      const half = 4.2 * words.length;
      if (place === deployed) svg.append(
        draw("line", { class: "pole", x1: px, x2: px, y1: box.top - 4, y2: y(shown.score[place]) }),
        draw("text", { class: "label flag", id: "flag", x: Math.min(Math.max(px, half), width - half), y: box.top - 10, "text-anchor": "middle" }, words));
      svg.append(draw("g", { transform: `translate(${at(shown.cost[place], shown.score[place])})` }, ...sign(place)));
    }
    if (inView || strip) svg.append(draw("text", { class: "halo", "text-anchor": "end", x: box.right, y: level - 6 }, constant.text));
    svg.addEventListener("click", (event) => {
      const cost = x0 + ((event.clientX - svg.getBoundingClientRect().left - box.left) / (box.right - box.left)) * (x1 - x0);
      show(efficient.reduce((best, p) => (Math.abs(shown.cost[p] - cost) < Math.abs(shown.cost[best] - cost) ? p : best)));
    });
    holder.replaceChildren(svg);
    moving = (place) => {
      here.setAttribute("transform", `translate(${at(shown.cost[place], shown.score[place])})`);
      drop.setAttribute("transform", `translate(${x(shown.cost[place]).toFixed(1)},0)`);
    };
    moving(current);
  };

  const legend = () => {
    const swatch = (...content) => draw("svg", { width: 34, height: 16, viewBox: "0 0 34 16", "aria-hidden": "true" }, ...content);
    const entry = (name, ...content) => byId("legend").append(make("li", {}, swatch(...content), make("span", {}, name)));
    entry(shown.band,
      draw("rect", { class: "band", x: 0.5, y: 2, width: 33, height: 12 }), draw("path", { class: "line main", d: "M0 8H34" }));
    rivals.forEach((rival, k) => entry(rival.name,
      draw("path", { class: `line r${k % 5}`, "stroke-dasharray": dashes[k % 5], d: "M0 8H34" }),
      draw("path", { class: `symbol r${k % 5}`, d: shapes[k % 5](3.6), transform: "translate(17 8)" })));
    if (full) entry(`${shown.full_name} for every row`, draw("polygon", { class: "star", points: star, transform: "translate(17 8.5) scale(.8)" }));
    if (constant.in_view || constant.strip) entry(constant.legend, draw("path", { class: "majority", d: "M0 8H34" }));
    for (const place of places) entry(marks(place).join(", "), draw("g", { transform: "translate(17 8) scale(.8)" }, ...sign(place)));
    entry("your budget", draw("g", { class: "here", transform: "translate(17 8)" }, draw("circle", { r: 5.5 })));
  };

  /* Tables: built once, then only the cells that follow the slider change. A bar is as long as its text says. */
  const cellOf = (text, isBar) => {
    if (text !== null) return { cell: make("td", {}, text) };
    if (!isBar) { const cell = make("td"); return { cell, set: (now) => { cell.textContent = now; } }; }
    const [fill, portion] = [make("i"), make("span", { class: "portion" })];
    const bar = make("span", { class: "bar", "aria-hidden": "true" }, fill);
    const width = (now) => (now.startsWith("<") ? 0.5 : now.startsWith(">") ? 99.5 : parseFloat(now));
    return { cell: make("td", { class: "nowrap" }, bar, portion),
      set: (now) => { fill.style.width = width(now) + "%"; portion.textContent = now; } };
  };
  const tables = shown.tables.map(({ section, caption, heads, lines, bar, has_sum: hasSum, at }) => {
    const rows = lines.map(([name, ...others]) => {
      const cells = others.map((text, k) => cellOf(text, k + 1 === bar));
      return { row: make("tr", {}, make("th", { scope: "row" }, name), ...cells.map(({ cell }) => cell)), cells };
    });
    const lists = rows.map(({ row }) => row);
    const foot = hasSum ? [make("tfoot", {}, lists.pop())] : [];
    const grid = make("table", {}, make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...lists), ...foot);
    const tall = lists.length > 24 ? " tall" : "";
    byId(section).append(make("div", { class: "block scroll" + tall, tabindex: "0", role: "region", "aria-label": caption }, grid));
    byId(`${section}-section`).hidden = false;
    const setters = rows.flatMap(({ cells }) => cells.flatMap(({ set }) => (set ? [set] : [])));
    return (place) => setters.forEach((set, k) => set(texts[at[place][k]]));
  });

  /* Tiles: the first text is the number, the others are notes. */
  const tileTexts = shown.tiles.map(([id, head]) => {
    const [number, notes] = [make("b", { id }), make("div", { id: `${id}-note` })];
    byId("tiles").append(make("div", { id: `${id}-tile`, class: id.split("-")[0] }, make("dt", {}, head), make("dd", {}, number, notes)));
    return ([first, ...others]) => { number.textContent = texts[first]; notes.replaceChildren(...others.map((k) => make("span", {}, texts[k]))); };
  });

  /* One point, shown everywhere. */
  const slider = byId("budget");
  const HANDLE = 16;
  const show = (place) => {
    current = place;
    const here = details[place];
    const [budget, spoken, summary, badge] = [here.budget, here.spoken, here.summary, here.badge].map(([k]) => texts[k]);
    slider.value = shown.budget[place];
    slider.setAttribute("aria-valuetext", spoken);
    say("budget-text", budget);
    say("summary", summary);
    here.tiles.forEach((some, k) => tileTexts[k](some));
    const [always, later] = here.bought.map((k) => texts[k]);
    byId("bought").replaceChildren(make("b", {}, `${shown.bought[0]}: `), always || "nothing",
      ...(later ? [". ", make("b", {}, `${shown.bought[1]}: `), later] : []), ".");
    say("badge", badge);
    byId("badge").hidden = !badge;
    tables.forEach((update) => update(place));
    moving(place);
    document.querySelector("tr.current")?.classList.remove("current");
    document.querySelector(`tr[data-point="${place}"]`)?.classList.add("current");
  };
  const step = (by) => {
    const above = efficient.findIndex((place) => shown.budget[place] > shown.budget[current]);
    const spot = efficient.includes(current) ? efficient.indexOf(current) : (above < 0 ? efficient.length : above) - (by > 0 ? 1 : 0);
    show(efficient[Math.min(efficient.length - 1, Math.max(0, spot + by))]);
  };

  slider.min = shown.budget[efficient[0]];
  slider.max = shown.budget[efficient[efficient.length - 1]];
  ["budget-low", "budget-high"].forEach((id, k) => say(id, shown.ends[k]));
  slider.addEventListener("input", () => show(within(Number(slider.value))));
  /* By keyboard from point to point: every press then changes something. */
  const far = Math.max(1, Math.round(efficient.length / 10));
  const keys = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: far, PageDown: -far, Home: -efficient.length, End: efficient.length };
  slider.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    step(keys[event.key]);
  });
  for (const [name, place] of Object.entries(marked)) {
    const button = byId(`show-${name.split(" ")[0]}`);
    button.hidden = false;
    button.addEventListener("click", () => show(place));
  }
  for (const place of places) {
    const share = Math.min(1, Math.max(0, (shown.budget[place] - slider.min) / (slider.max - slider.min || 1)));
    const mark = make("span", { class: `mark ${marks(place)[0].split(" ")[0]}` }, marks(place).join(", "));
    /* The middle of the handle travels from half its width to as much before the other end. */
    mark.style.left = `calc(${HANDLE / 2}px + ${share} * (100% - ${HANDLE}px))`;
    mark.classList.toggle("late", share > 0.6);
    byId("marks").append(make("div", {}, mark));
  }
  byId("tiles").lastChild.classList.toggle("wide", shown.tiles.length % 2 === 1);
  legend();
  paint();
  show(current);
  const row = document.querySelector("tr.current");
  const list = row.closest(".scroll");
  list.scrollTop = row.offsetTop - list.clientHeight / 2;
  let painted = byId("chart").clientWidth;
  new ResizeObserver(() => {
    const width = byId("chart").clientWidth;
    if (Math.abs(width - painted) > 1) { painted = width; paint(); }
  }).observe(byId("chart"));
})();
