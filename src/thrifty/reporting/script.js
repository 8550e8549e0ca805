"use strict";
(() => {
  document.documentElement.classList.add("js");
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const { points, full, rivals, certified, deployed, majority, purchases, groupings, bill, words, told } = facts;
  const isNumber = facts.is_number;
  const certifiedAt = certified ? certified.point : null;
  const leastAt = bill ? bill.least : null;
  const named = [["deployed", deployed], ["certified", certifiedAt], ["least total cost", leastAt]];
  const marks = (place) => named.filter(([, at]) => at === place).map(([name]) => name);
  /* Points with a name, the deployed one first; one that is both deployed and certified is one entry. */
  const marked = [...new Set([deployed, certifiedAt, leastAt])].filter((place) => place !== null);
  const efficient = points.budget.map((_, place) => place).filter((place) => points.efficient[place]);
  const byId = (id) => document.getElementById(id);
  let current = facts.start;

  /* Words and numbers. Text only ever enters the page as text. */
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const draw = (tag, attributes = {}, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  /* A billionth more leaves no middle, which browsers and Python round to different sides. */
  const fixed = (value, digits) =>
    (value * (1 + 1e-9)).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const number = (value) => fixed(value, facts.cost_digits);
  const money = (value) => number(value) + (facts.unit ? "\u00a0" + facts.unit : "");
  const percent = (share, digits = 0) => fixed(100 * share, digits) + "\u00a0%";
  const whole = (count) => count.toLocaleString("en-US");
  /* A few rows out of many are not none, and almost all are not all. */
  const portion = (share) =>
    share > 0 && share < 0.005 ? "<\u00a01\u00a0%" : share < 1 && share > 0.995 ? ">\u00a099\u00a0%" : percent(share);
  const say = (id, text) => { byId(id).textContent = text; };

  const shareSent = (place) => points.reach[place][points.reach[place].length - 1];
  const firstBought = (place, item) => facts.systems[points.system[place]].first[item];
  /* A purchase that nobody makes stands behind the last place. */
  const shareBuying = (place, item) =>
    points.bought.length && points.bought[place].length ? points.bought[place][item] : points.reach[place][firstBought(place, item)] ?? 0;
  const hasStages = points.reach.some((shares) => shares.length > 2);
  const within = (budget) => {
    let best = efficient[0];
    for (const place of efficient) if (points.budget[place] <= budget * (1 + 1e-9)) best = place;
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
  const ticks = (low, high, wanted) => {
    const rough = (high - low) / wanted;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((k) => k * power).find((k) => k >= rough);
    const digits = Math.max(0, -Math.floor(Math.log10(step)) + (step / power === 2.5 ? 1 : 0));
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) found.push(k * step || 0);
    return { found, digits };
  };
  const domain = () => {
    const floor = facts.majority_is_in_view ? [majority.accuracy] : [];
    const costs = [...points.cost, ...rivals.flatMap((rival) => rival.cost), ...(full ? [full.cost] : [])];
    const [own, tops] = [[...points.low, ...points.high], [...points.high, ...(full ? [full.accuracy] : [])]];
    const all = [...own, ...tops, ...floor, ...rivals.flatMap((rival) => rival.accuracy)];
    if (bill) {
      /* Mistakes cost less further down: a rival far above our cheapest point is cut off, and nothing is below 0. */
      const [low, ownHigh] = [Math.min(...all), Math.max(...own, ...tops, ...floor)];
      const high = Math.min(Math.max(...all), ownHigh + 0.5 * (ownHigh - low));
      const pad = 0.06 * (high - low) || 0.01;
      return { x: [0, 1.05 * Math.max(...costs) || 1], y: [Math.max(0, low - pad), high + pad] };
    }
    const top = Math.max(...all);
    const ownLow = Math.min(...own, ...(full ? [full.accuracy] : []));
    /* A rival that falls far below our cheapest point must not flatten the picture; its line is cut off. */
    const bottom = Math.min(...floor, Math.max(Math.min(...all), ownLow - 0.5 * (top - ownLow)));
    const pad = 0.06 * (top - bottom) || 0.01;
    return { x: [0, 1.05 * Math.max(...costs) || 1], y: [bottom - pad, top + pad] };
  };
  /* Points chosen on other rows go up and down a little here: each is a dot, the line leaves out those that crowd. */
  const room = 0.012 * domain().x[1];
  const byCost = [...efficient].sort((a, b) => points.cost[a] - points.cost[b])
    .reduce((kept, p) => (kept.length && points.cost[p] - points.cost[kept[kept.length - 1]] < room ? kept : [...kept, p]), []);
  let moving = null;
  const sign = (place) => [
    ...(place === leastAt ? [draw("path", { class: "lowest", d: shapes[3](marks(place).length > 1 ? 12 : 7) })] : []),
    ...(place === certifiedAt ? [draw("path", { class: "seal", d: seal(place === deployed ? 11 : 6) })] : []),
    ...(place === deployed ? [draw("circle", { class: "pin", r: 6.5 })] : []),
  ];

  const paint = () => {
    const holder = byId("chart");
    const width = Math.max(260, Math.round(holder.clientWidth || 640));
    const height = Math.round(Math.min(500, Math.max(300, width * 0.7)));
    const box = { left: 54, right: width - 14, top: (deployed === null ? 12 : 30) + (bill ? 16 : 0), bottom: height - 46 };
    /* Where the majority class is far below, its line gets a strip of its own under a break of the axis. */
    const [inView, strip] = [facts.majority_is_in_view, !facts.majority_is_in_view && !bill];
    box.foot = box.bottom - (strip ? 44 : 0);
    const { x: [x0, x1], y: [y0, y1] } = domain();
    const x = (cost) => box.left + ((cost - x0) / (x1 - x0)) * (box.right - box.left);
    const y = (accuracy) => box.foot - ((accuracy - y0) / (y1 - y0)) * (box.foot - box.top);
    const at = (cost, accuracy) => `${x(cost).toFixed(1)},${y(accuracy).toFixed(1)}`;
    /* Money between two points that lie apart buys only the cheaper one: a step, not a slope. */
    const line = (pairs) => pairs.flatMap(([cost, accuracy], k) =>
      k > 0 && cost - pairs[k - 1][0] > 0.03 * (x1 - x0) ? [at(cost, pairs[k - 1][1]), at(cost, accuracy)] : [at(cost, accuracy)]);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-labelledby": "chart-name" });
    svg.append(draw("title", { id: "chart-name" },
      `${words.vertical} against mean cost per row; ${facts.method}, ${rivals.map((r) => r.name + ", ").join("")}the full model, and the ${words.constant}.`));
    if (bill) svg.append(draw("text", { x: 4, y: 12 }, "mistakes per row" + (facts.unit ? `, ${facts.unit}` : "")));
    const clip = draw("clipPath", { id: "inside" },
      draw("rect", { x: box.left - 6, y: box.top - 6, width: box.right - box.left + 12, height: box.foot - box.top + 6 }));
    svg.append(draw("defs", {}, clip));
    const across = ticks(x0, x1, Math.min(8, width / 75));
    const [scale, sign100] = isNumber || bill ? [1, ""] : [100, "%"];
    const up = ticks(scale * y0, scale * y1, height / 62);
    for (const value of up.found) {
      const level = y(value / scale);
      svg.append(draw("line", { class: "grid", x1: box.left, x2: box.right, y1: level, y2: level }));
      svg.append(draw("text", { x: box.left - 8, y: level + 4, "text-anchor": "end" }, fixed(value, up.digits) + sign100));
    }
    for (const value of across.found) {
      svg.append(draw("line", { class: "axis", x1: x(value), x2: x(value), y1: box.bottom, y2: box.bottom + 5 }));
      svg.append(draw("text", { x: x(value), y: box.bottom + 19, "text-anchor": "middle" }, fixed(value, across.digits)));
    }
    svg.append(draw("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
    svg.append(draw("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" },
      words.across + (facts.unit ? `, ${facts.unit}` : "")));
    const inside = draw("g", { "clip-path": "url(#inside)" });
    const level = inView ? y(majority.accuracy) : box.bottom - 11;
    if (inView || strip) svg.append(draw("line", { class: "majority", id: "majority", x1: box.left, x2: box.right, y1: level, y2: level }));
    if (strip) svg.append(
      draw("text", { x: box.left - 8, y: level + 4, "text-anchor": "end" }, fixed(scale * majority.accuracy, 0) + sign100),
      draw("path", { class: "axis", d: `M${box.left - 7} ${box.foot + 12}l14 -6m-14 11l14 -6` }));
    inside.append(draw("polygon", { class: "band",
      points: [...line(byCost.map((p) => [points.cost[p], points.low[p]])),
        ...line(byCost.map((p) => [points.cost[p], points.high[p]])).reverse()].join(" ") }));
    rivals.forEach((rival, k) => {
      const order = rival.cost.map((_, i) => i).sort((a, b) => rival.cost[a] - rival.cost[b]);
      inside.append(draw("polyline", { class: `line r${k % 5}`, "stroke-dasharray": dashes[k % 5],
        points: line(order.map((i) => [rival.cost[i], rival.accuracy[i]])).join(" ") }));
      const every = Math.max(1, Math.floor(order.length / 7));
      order.filter((_, i) => i % every === 0 || i === order.length - 1).forEach((i) => inside.append(draw("path", {
        class: `symbol r${k % 5}`, d: shapes[k % 5](3.6), transform: `translate(${at(rival.cost[i], rival.accuracy[i])})` })));
    });
    inside.append(draw("polyline", { class: "line main",
      points: line(byCost.map((p) => [points.cost[p], points.accuracy[p]])).join(" ") }));
    for (const p of efficient)
      inside.append(draw("circle", { class: "dot", r: efficient.length > 48 ? 1.7 : 2.6, cx: x(points.cost[p]), cy: y(points.accuracy[p]) }));
    svg.append(inside);
    if (full) {
      svg.append(draw("polygon", { class: "star", points: star, transform: `translate(${at(full.cost, full.accuracy)})` }));
      const above = y(full.accuracy) - 26 > 0;
      svg.append(draw("text", { class: "label", "text-anchor": "end", x: Math.min(x(full.cost) + 12, box.right),
        y: y(full.accuracy) + (above ? -15 : 25) }, "full model"));
    }
    const drop = draw("line", { class: "drop", x1: 0, x2: 0, y1: box.top, y2: box.bottom });
    const here = draw("g", { class: "here", id: "here" }, draw("circle", { class: "rim", r: 10.5 }), draw("circle", { r: 10.5 }));
    svg.append(drop, here);
    /* The deployed point flies a flag above the picture, where no line can run into it. */
    for (const place of marked) {
      const px = x(points.cost[place]);
      const words = marks(place).join(", ");
      const half = 4.2 * words.length;
      if (place === deployed) svg.append(
        draw("line", { class: "pole", x1: px, x2: px, y1: box.top - 4, y2: y(points.accuracy[place]) }),
        draw("text", { class: "label flag", id: "flag", x: Math.min(Math.max(px, half), width - half), y: box.top - 10, "text-anchor": "middle" }, words));
      svg.append(draw("g", { transform: `translate(${at(points.cost[place], points.accuracy[place])})` }, ...sign(place)));
    }
    if (inView || strip) svg.append(draw("text", { class: "halo", "text-anchor": "end", x: box.right, y: level - 6 }, facts.constant));
    svg.addEventListener("click", (event) => {
      const cost = x0 + ((event.clientX - svg.getBoundingClientRect().left - box.left) / (box.right - box.left)) * (x1 - x0);
      show(efficient.reduce((best, p) => (Math.abs(points.cost[p] - cost) < Math.abs(points.cost[best] - cost) ? p : best)));
    });
    holder.replaceChildren(svg);
    moving = (place) => {
      here.setAttribute("transform", `translate(${at(points.cost[place], points.accuracy[place])})`);
      drop.setAttribute("transform", `translate(${x(points.cost[place]).toFixed(1)},0)`);
    };
    moving(current);
  };

  const legend = () => {
    const swatch = (...content) => draw("svg", { width: 34, height: 16, viewBox: "0 0 34 16", "aria-hidden": "true" }, ...content);
    const entry = (name, ...content) => byId("legend").append(make("li", {}, swatch(...content), make("span", {}, name)));
    entry(`${facts.method}, with a ${Number((100 * facts.measured.level).toFixed(3))}\u00a0% band`,
      draw("rect", { class: "band", x: 0.5, y: 2, width: 33, height: 12 }), draw("path", { class: "line main", d: "M0 8H34" }));
    rivals.forEach((rival, k) => entry(rival.name,
      draw("path", { class: `line r${k % 5}`, "stroke-dasharray": dashes[k % 5], d: "M0 8H34" }),
      draw("path", { class: `symbol r${k % 5}`, d: shapes[k % 5](3.6), transform: "translate(17 8)" })));
    if (full) entry("full model for every row", draw("polygon", { class: "star", points: star, transform: "translate(17 8.5) scale(.8)" }));
    if (facts.majority_is_in_view || !bill) entry(`${words.constant} for every row`, draw("path", { class: "majority", d: "M0 8H34" }));
    for (const place of marked) entry(marks(place).join(", "), draw("g", { transform: "translate(17 8) scale(.8)" }, ...sign(place)));
    entry("your budget", draw("g", { class: "here", transform: "translate(17 8)" }, draw("circle", { r: 5.5 })));
  };

  /* Tables: built once, then only their numbers change. */
  const bar = () => { const fill = make("i"); return { box: make("span", { class: "bar", "aria-hidden": "true" }, fill), fill }; };
  const table = (caption, heads, tall) => {
    const body = make("tbody");
    const grid = make("table", {}, make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))), body);
    const holder = make("div", { class: "block scroll" + (tall ? " tall" : ""), tabindex: "0", role: "region", "aria-label": caption }, grid);
    return { body, grid, holder };
  };
  const barCell = () => {
    const [{ box, fill }, text] = [bar(), make("span", { class: "portion" })];
    return { cell: make("td", { class: "nowrap" }, box, text), set: (share) => { fill.style.width = 100 * share + "%"; text.textContent = portion(share); } };
  };
  const groupTables = groupings.map((grouping, number) => {
    const { caption, heads, at, full: alone } = facts.groups[number];
    const { body, holder } = table(caption, heads, grouping.labels.length > 24);
    const updates = grouping.labels.map((label, k) => {
      const [sent, good] = [barCell(), make("td")];
      const n = grouping.n_rows[k];
      body.append(make("tr", {}, make("th", { scope: "row" }, label), make("td", {}, whole(n)), sent.cell, good, ...(alone ? [make("td", {}, alone[k])] : [])));
      return (place) => { sent.set(grouping.sent[place][k] / n); good.textContent = at[place][k]; };
    });
    byId("groups").append(holder);
    return (place) => updates.forEach((update) => update(place));
  });
  const purchaseTable = (() => {
    const priced = purchases.length > 0 && purchases[0].price !== null;
    const hint = byId("purchases-hint");
    if (!priced) hint.textContent = "At the budget above.";
    if (hasStages) hint.append(" A row goes from stage to stage, and pays until one of them answers.");
    const staged = (...cells) => (hasStages ? cells : []);
    const heads = ["feature", ...staged("stage"), ...(priced ? ["price"] : []), "bought for", ...(priced ? ["per row"] : [])];
    const { body, grid, holder } = table("Features", heads, purchases.length > 24);
    const line = (name, price, columns, shareAt, stageAt) => {
      const [share, spend, stage] = [barCell(), make("td"), make("td")];
      const label = make("th", { scope: "row" }, name, ...(columns > 1 ? [make("small", {}, ` (${whole(columns)} columns)`)] : []));
      body.append(make("tr", {}, label, ...staged(stage), ...(priced ? [make("td", {}, number(price))] : []), share.cell, ...(priced ? [spend] : [])));
      return (place) => {
        const s = shareAt(place);
        share.set(s);
        stage.textContent = stageAt(place);
        if (priced) spend.textContent = number(price * s);
      };
    };
    const stageOf = (place, k) => {
      const [at, last] = [firstBought(place, k), points.reach[place].length - 1];
      return at < last ? whole(at) : at === last ? "full model" : "\u2013";
    };
    const updates = purchases.map((item, k) =>
      line(item.name, item.price, item.n_columns, (place) => shareBuying(place, k), (place) => stageOf(place, k)));
    const total = make("td");
    if (priced) {
      if (full && full.call_price > 0) updates.push(line("asking the full model", full.call_price, 1, shareSent, () => "full model"));
      grid.append(make("tfoot", {}, make("tr", {}, make("th", { scope: "row" }, "mean cost per row"), ...staged(make("td")), make("td"), make("td"), total)));
    }
    byId("purchases").append(holder);
    return (place) => { updates.forEach((update) => update(place)); total.textContent = number(points.cost[place]); };
  })();

  const mistakeTable = (() => {
    if (!bill || bill.kinds.length === 0) return () => {};
    byId("mistakes-section").hidden = false;
    const alone = bill.kinds[0].full !== null;
    const heads = ["true class", "answer", "price", "rows", "per row", ...(alone ? ["per row, full model"] : [])];
    const { body, grid, holder } = table("Mistakes by kind", heads, false);
    const updates = bill.kinds.map((kind) => {
      const [rows, lost] = [make("td"), make("td")];
      body.append(make("tr", {}, make("th", { scope: "row" }, kind.truth), make("td", {}, kind.answer),
        make("td", {}, kind.price === null ? "\u2013" : number(kind.price)), rows, lost, ...(alone ? [make("td", {}, number(kind.full))] : [])));
      return (place) => { rows.textContent = whole(kind.count[place]); lost.textContent = number(kind.lost[place]); };
    });
    const [rows, total] = [make("td"), make("td")];
    grid.append(make("tfoot", {}, make("tr", {}, make("th", { scope: "row" }, "all mistakes"), make("td"), make("td"), rows, total,
      ...(alone ? [make("td", {}, number(full.accuracy))] : []))));
    byId("mistakes").append(holder);
    return (place) => {
      updates.forEach((update) => update(place));
      rows.textContent = whole(bill.kinds.reduce((sum, kind) => sum + kind.count[place], 0));
      total.textContent = number(points.accuracy[place]);
    };
  })();
  /* Tiles: the first text is the number, the others are notes. */
  const tileTexts = facts.tiles.map(([id, head]) => {
    const [number, notes] = [make("b", { id }), make("div", { id: `${id}-note` })];
    byId("tiles").append(make("div", { id: `${id}-tile`, class: id.split("-")[0] }, make("dt", {}, head), make("dd", {}, number, notes)));
    return ([first, ...others]) => { number.textContent = first; notes.replaceChildren(...others.map((text) => make("span", {}, text))); };
  });

  /* One point, shown everywhere. */
  const slider = byId("budget");
  const HANDLE = 16;
  const show = (place, budget = points.budget[place]) => {
    current = place;
    const here = told[place];
    slider.value = budget;
    slider.setAttribute("aria-valuetext", money(budget) + here.spoken);
    say("budget-text", money(budget) + " per row");
    say("summary", `For at most ${money(budget)}${here.summary}`);
    here.tiles.forEach((texts, k) => tileTexts[k](texts));
    const [always, later] = here.bought;
    byId("bought").replaceChildren(make("b", {}, "Bought for every row: "), always || "nothing",
      ...(later ? [". ", make("b", {}, "Only where that is not enough: "), later] : []), ".");
    say("badge", marks(place).join(", "));
    byId("badge").hidden = marks(place).length === 0;
    groupTables.forEach((update) => update(place));
    mistakeTable(place);
    purchaseTable(place);
    moving(place);
    document.querySelector("tr.current")?.classList.remove("current");
    document.querySelector(`tr[data-point="${place}"]`)?.classList.add("current");
  };
  const step = (by) => {
    const above = efficient.findIndex((place) => points.budget[place] > points.budget[current]);
    const spot = efficient.includes(current) ? efficient.indexOf(current) : (above < 0 ? efficient.length : above) - (by > 0 ? 1 : 0);
    show(efficient[Math.min(efficient.length - 1, Math.max(0, spot + by))]);
  };

  slider.min = points.budget[efficient[0]];
  slider.max = points.budget[efficient[efficient.length - 1]];
  say("budget-low", money(Number(slider.min)));
  say("budget-high", money(Number(slider.max)));
  slider.addEventListener("input", () => show(within(Number(slider.value)), Number(slider.value)));
  /* By keyboard from point to point: every press then changes something. */
  const far = Math.max(1, Math.round(efficient.length / 10));
  const keys = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: far, PageDown: -far, Home: -efficient.length, End: efficient.length };
  slider.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    step(keys[event.key]);
  });
  for (const [name, place] of named) {
    if (place === null) continue;
    const button = byId(`show-${name.split(" ")[0]}`);
    button.hidden = false;
    button.addEventListener("click", () => show(place));
  }
  for (const place of marked) {
    const share = Math.min(1, Math.max(0, (points.budget[place] - slider.min) / (slider.max - slider.min || 1)));
    const mark = make("span", { class: `mark ${marks(place)[0].split(" ")[0]}` }, marks(place).join(", "));
    /* The middle of the handle travels from half its width to as much before the other end. */
    mark.style.left = `calc(${HANDLE / 2}px + ${share} * (100% - ${HANDLE}px))`;
    mark.classList.toggle("late", share > 0.6);
    byId("marks").append(make("div", {}, mark));
  }
  byId("groups-section").hidden = groupings.length === 0;
  byId("tiles").lastChild.classList.toggle("wide", facts.tiles.length % 2 === 1);
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
