// The page of a model: boxes in boxes, laid out anew whenever one opens or closes.
// Names come from files of anyone, so they are only ever written as text.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const VALUES = new Map(DATA.values);
const PARAMETERS = new Map(DATA.parameters);
const GAP = 26, ROW_GAP = 44, PAD = 16, HEAD = 34, HEIGHT = 46, BEND = 10;
const MOST_LABELS = 160, MOST_FOUND = 60;
const number = new Intl.NumberFormat("en");
const $ = (id) => document.getElementById(id);

let tree, leaves, order, chosen = null, view = { x: 0, y: 0, k: 1 };

function element(kind, attributes = {}, text = null, space = SVG) {
  const made = space ? document.createElementNS(space, kind) : document.createElement(kind);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}
const html = (kind, attributes, text = null) => element(kind, attributes, text, null);

function shortened(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function sizeText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) (bytes /= 1024), unit++;
  return unit ? `${bytes.toFixed(1)} ${units[unit]}` : `${bytes} B`;
}

// --- the boxes ----------------------------------------------------------------------------------
function prepare(root) {
  leaves = new Map();
  const visit = (box, parent) => {
    box.parent = parent;
    box.isOpen = false;
    if (box.n !== null) leaves.set(box.n, box);
    for (const member of box.m) visit(member, box);
    const own = box.n !== null && box.n < DATA.nodes.length ? [DATA.nodes[box.n]] : [];
    box.total = { nodes: own.length, parameters: 0, macs: 0, bytes: 0 };
    for (const node of own) {
      for (const name of node.p) box.total.parameters += PARAMETERS.get(name).count;
      (box.total.macs += node.m), (box.total.bytes += node.b);
    }
    for (const member of box.m)
      for (const key of Object.keys(box.total)) box.total[key] += member.total[key];
  };
  visit(root, null);
  root.isOpen = true;
  let inner = root; // a model that is one box alone begins with what is in it
  while (inner && inner.m.filter((b) => b.k === "group").length <= 2) {
    inner = inner.m.find((b) => b.k === "group");
    if (inner && inner.m.length <= 40) inner.isOpen = true;
    else break;
  }
}

function apart(row, wanted, widths, gap) {
  // The places nearest to those wanted at which nothing overlaps: blocks at the mean of their wishes.
  const offsets = [0];
  for (let i = 1; i < row.length; i++)
    offsets.push(offsets[i - 1] + (widths(row[i - 1]) + widths(row[i])) / 2 + gap);
  const blocks = [];
  row.forEach((_, i) => {
    let block = { mean: wanted[i] - offsets[i], count: 1 };
    while (blocks.length && blocks[blocks.length - 1].mean > block.mean) {
      const before = blocks.pop();
      const count = before.count + block.count;
      block = { mean: (before.mean * before.count + block.mean * block.count) / count, count };
    }
    blocks.push(block);
  });
  return blocks.flatMap((b) => Array(b.count).fill(b.mean)).map((start, i) => start + offsets[i]);
}

function place(box) {
  if (!box.isOpen) {
    const letters = Math.max(shortened(box.l, 30).length + 2 * (box.k === "group"), shortened(box.d, 30).length * 0.86);
    box.w = Math.max(92, letters * 7.4 + 26);
    box.h = HEIGHT;
    return;
  }
  box.m.forEach(place);
  const widths = (item) => (item < 0 ? BEND : box.m[item].w);
  const near = new Map();
  const link = (a, b) => near.set(a, [...(near.get(a) ?? []), b]);
  for (const edge of box.e) {
    if (edge.quiet) continue;
    const way = [edge.a, ...edge.w, edge.b];
    for (let i = 1; i < way.length; i++) link(way[i - 1], way[i]), link(way[i], way[i - 1]);
  }
  const x = new Map();
  for (const row of box.rows) {
    let at = -(row.reduce((sum, item) => sum + widths(item), 0) + GAP * (row.length - 1)) / 2;
    for (const item of row) x.set(item, at + widths(item) / 2), (at += widths(item) + GAP);
  }
  for (let turn = 0; turn < 40; turn++) {
    for (const row of turn % 2 ? [...box.rows].reverse() : box.rows) {
      const wanted = row.map((item) => {
        const others = near.get(item);
        return others ? others.reduce((sum, o) => sum + x.get(o), 0) / others.length : x.get(item);
      });
      apart(row, wanted, widths, GAP).forEach((at, i) => x.set(row[i], at));
    }
  }
  const ends = [...x].flatMap(([item, at]) => [at - widths(item) / 2, at + widths(item) / 2]);
  const left = Math.min(...ends, 0);
  let y = box.parent ? HEAD : 0;
  box.points = new Map();
  for (const row of box.rows) {
    const height = Math.max(0, ...row.map((item) => (item < 0 ? 0 : box.m[item].h)));
    for (const item of row) {
      if (item < 0) box.points.set(item, { x: x.get(item) - left + PAD, y: y + height / 2 });
      else {
        const member = box.m[item];
        member.x = x.get(item) - left + PAD - member.w / 2;
        member.y = y + (height - member.h) / 2;
      }
    }
    y += height + ROW_GAP;
  }
  box.w = Math.max(Math.max(...ends, 0) - left + 2 * PAD, shortened(box.l, 60).length * 7.4 + 60);
  box.h = y - ROW_GAP + PAD;
}

function locate(box, x, y) {
  box.at = { x, y };
  if (box.isOpen) for (const member of box.m) locate(member, x + member.x, y + member.y);
}

function shown(box) {
  // The box that stands for this one now: the outermost closed one around it, or itself.
  let found = box;
  for (let around = box.parent; around; around = around.parent) if (!around.isOpen) found = around;
  return found;
}

// --- drawing ------------------------------------------------------------------------------------
function draw() {
  place(tree);
  locate(tree, 0, 0);
  const boxes = element("g"), edges = element("g"), labels = element("g");
  order = [];
  drawBox(tree, boxes);
  const wires = [];
  collectEdges(tree, wires);
  for (const wire of wires) drawEdge(wire, edges, wires.length <= MOST_LABELS ? labels : null);
  $("scene").replaceChildren(boxes, edges, labels);
  move();
}

function drawBox(box, into) {
  if (box.parent) {
    const group = element("g", {
      class: `box ${box.k} family-${box.f} role-${box.r}${box.isOpen ? " open" : ""}`,
      transform: `translate(${box.at.x} ${box.at.y})`,
    });
    const isSquare = box.k === "node" || box.k === "group";
    group.append(
      element("rect", { width: box.w, height: box.h, rx: isSquare ? 6 : 18 }),
      element("title", {}, `${box.l}\n${box.d}`),
    );
    if (box.isOpen)
      group.append(element("text", { x: 12, y: 21, class: "label" }, `− ${shortened(box.l, 60)}`));
    else {
      const sign = box.k === "group" ? "+ " : "";
      const label = { x: box.w / 2, y: 19, class: "label", "text-anchor": "middle" };
      const detail = { x: box.w / 2, y: 36, class: "detail", "text-anchor": "middle" };
      group.append(
        element("text", label, sign + shortened(box.l, 30)),
        element("text", detail, shortened(box.d, 30)),
      );
    }
    group.addEventListener("click", (event) => {
      event.stopPropagation();
      const again = chosen === box;
      choose(box, false);
      if (box.k === "group" && (again || event.detail > 1 || box.isOpen)) toggle(box);
      else if (box.k === "group" && matchMedia("(pointer: coarse)").matches) toggle(box);
    });
    box.drawn = group;
    if (box === chosen) group.classList.add("chosen");
    order.push(box);
    into.append(group);
  }
  if (box.isOpen) for (const member of box.m) drawBox(member, into);
}

function collectEdges(box, wires) {
  if (!box.isOpen) return;
  for (const edge of box.e) {
    const seen = new Set();
    for (const [start, end, name] of edge.p) {
      const from = shown(leaves.get(start)), to = shown(leaves.get(end));
      const key = `${order.indexOf(from)} ${order.indexOf(to)}`;
      if (seen.has(key)) continue;
      seen.add(key);
      wires.push({ box, edge, from, to, name, count: edge.p.length });
    }
  }
  for (const member of box.m) collectEdges(member, wires);
}

function drawEdge(wire, into, labels) {
  const { box, edge, from, to } = wire;
  const points = [{ x: from.at.x + from.w / 2, y: from.at.y + from.h }];
  for (const bend of edge.w) {
    const at = box.points.get(bend);
    points.push({ x: box.at.x + at.x, y: box.at.y + at.y });
  }
  points.push({ x: to.at.x + to.w / 2, y: to.at.y - 3 });
  let way = `M${points[0].x} ${points[0].y}`;
  const isLong = !edge.w.length && to.at.y - from.at.y > 3 * (HEIGHT + ROW_GAP);
  if (edge.quiet || isLong) {
    // around the boxes between, on the right
    const a = { x: from.at.x + from.w, y: from.at.y + from.h / 2 };
    const b = { x: to.at.x + to.w, y: to.at.y + to.h / 2 };
    const out = Math.max(a.x, b.x) + 40 + Math.min(Math.abs(b.y - a.y) / 5, 120);
    way = `M${a.x} ${a.y}C${out} ${a.y} ${out} ${b.y} ${b.x + 3} ${b.y}`;
    points.length = 1;
  }
  for (let i = 1; i < points.length; i++) {
    const a = points[i - 1], b = points[i];
    const half = Math.max(Math.abs(b.y - a.y) / 2, 18);
    way += `C${a.x} ${a.y + half} ${b.x} ${b.y - half} ${b.x} ${b.y}`;
  }
  const path = element("path", { d: way, class: edge.quiet ? "edge quiet" : isLong ? "edge long" : "edge" });
  path.setAttribute("marker-end", "url(#arrow)");
  path.append(element("title", {}, `${wire.name}\n${VALUES.get(wire.name) ?? ""}`));
  (from.edges ??= []).push(path);
  (to.edges ??= []).push(path);
  into.append(path);
  const value = VALUES.get(wire.name);
  const isNear = to.at.y - from.at.y - from.h < 4 * ROW_GAP;
  if (labels && value && !edge.quiet && !edge.w.length && isNear) {
    const middle = { x: (points[0].x + points[1].x) / 2, y: (points[0].y + points[1].y) / 2 + 3 };
    const text = shortened(value.replace(/^\S+ /, ""), 28);
    labels.append(element("text", { ...middle, class: "size", "text-anchor": "middle" }, text));
  }
}

function toggle(box) {
  if (box.k !== "group") return;
  const before = { ...box.at };
  box.isOpen = !box.isOpen;
  for (const each of order) each.edges = undefined;
  draw();
  view.x += (before.x - box.at.x) * view.k; // what was clicked stays where it is
  view.y += (before.y - box.at.y) * view.k;
  if (box.isOpen && box.w * view.k > innerWidth) fit(box);
  choose(box, false);
  move();
}

function move() {
  $("scene").setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.k})`);
}

function fit(box = tree) {
  const area = $("graph").getBoundingClientRect();
  const least = box === tree ? 0.02 : 0.2;
  const both = Math.min((area.width - 32) / box.w, (area.height - 32) / box.h, 1.25);
  // A long model is shown from its top at a size that can be read.
  const wide = Math.min((area.width - 32) / box.w, 1);
  view.k = Math.max(least, both < 0.6 ? Math.max(both, Math.min(wide, 0.85)) : both);
  view.x = (area.width - box.w * view.k) / 2 - box.at.x * view.k;
  const height = box.h * view.k;
  view.y = (height > area.height - 32 ? 16 : (area.height - height) / 2) - box.at.y * view.k;
  move();
}

function zoom(factor, x, y) {
  const area = $("graph").getBoundingClientRect();
  const at = { x: x ?? area.width / 2, y: y ?? area.height / 2 };
  const k = Math.min(4, Math.max(0.02, view.k * factor));
  view.x = at.x - ((at.x - view.x) * k) / view.k;
  view.y = at.y - ((at.y - view.y) * k) / view.k;
  view.k = k;
  move();
}

// --- choosing -----------------------------------------------------------------------------------
function choose(box, isMoved = true) {
  for (const each of order) {
    each.drawn.classList.remove("chosen");
    for (const path of each.edges ?? []) path.classList.remove("near");
  }
  chosen = box;
  describe(box);
  if (!box) return;
  box.drawn?.classList.add("chosen");
  for (const path of box.edges ?? []) path.classList.add("near");
  if (!box.at) return;
  const area = $("graph").getBoundingClientRect();
  const top = view.y + box.at.y * view.k, left = view.x + box.at.x * view.k;
  const isOut = top < 0 || top + HEIGHT * view.k > area.height || left > area.width
    || left + box.w * view.k < 0;
  if (isMoved || isOut) {
    if (view.k < 0.5) view.k = 0.9;
    view.x = area.width / 2 - (box.at.x + box.w / 2) * view.k;
    view.y = area.height / 2 - (box.at.y + Math.min(box.h, 300) / 2) * view.k;
    move();
  }
}

function reveal(box) {
  for (let around = box.parent; around; around = around.parent) around.isOpen = true;
  for (const each of order) each.edges = undefined;
  draw();
  choose(box);
}

function rows(table, entries) {
  for (const [name, text, click] of entries) {
    const row = html("tr", {});
    row.append(html("th", { scope: "row" }, name));
    const cell = html("td", {});
    if (click) {
      const button = html("button", { class: "link", type: "button" }, text);
      button.addEventListener("click", click);
      cell.append(button);
    } else cell.textContent = text;
    row.append(cell);
    table.append(row);
  }
}

function section(panel, title, entries) {
  if (!entries.length) return;
  panel.append(html("h3", {}, title));
  const table = html("table", {});
  rows(table, entries.slice(0, 200));
  panel.append(table);
  if (entries.length > 200) panel.append(html("p", {}, `and ${entries.length - 200} more`));
}

function totals(total) {
  const found = [["nodes", number.format(total.nodes)]];
  if (total.parameters) found.push(["parameters", number.format(total.parameters)]);
  if (total.macs) found.push(["multiply-adds", number.format(total.macs)]);
  if (total.bytes) found.push(["makes", sizeText(total.bytes)]);
  return found;
}

function described(name, isRead) {
  const parameter = PARAMETERS.get(name);
  const trained = parameter && parameter.trained !== null;
  const role = !parameter ? "" : !trained ? ", parameter" : parameter.trained ? ", trained" : ", frozen";
  const text = `${VALUES.get(name) ?? "?"}${role}`;
  const others = isRead
    ? [...leaves.values()].filter((b) => b.n < DATA.nodes.length && DATA.nodes[b.n].u.includes(name))
    : [];
  return [name, text, others.length ? () => reveal(others[0]) : undefined];
}

function describe(box) {
  const panel = $("about");
  panel.replaceChildren();
  document.body.classList.toggle("about-open", Boolean(box));
  $("close").hidden = !box;
  const about = box ?? tree;
  panel.append(html("h2", {}, about.l || "model"));
  if (!box) {
    section(panel, "model", [...DATA.facts, ...totals(tree.total)]);
    section(panel, "inputs", DATA.inputs.map((n) => [n, VALUES.get(n) ?? "?"]));
    section(panel, "outputs", DATA.outputs.map((n) => [n, VALUES.get(n) ?? "?"]));
    if (DATA.note) panel.append(html("p", {}, DATA.note));
    return;
  }
  const node = box.n !== null ? DATA.nodes[box.n] : undefined;
  if (!node) {
    panel.append(html("p", {}, box.k === "group" ? box.d : `${box.k}: ${box.d}`));
    if (box.k !== "group") return;
    section(panel, "layer", totals(box.total));
    const names = inside(box).flatMap((n) => n.p);
    section(panel, "parameters", names.map((n) => described(n, false)));
    const members = box.m.map((m) => [m.l, m.d, () => reveal(m)]);
    section(panel, "holds", members);
    return;
  }
  panel.append(html("p", {}, node.n));
  section(panel, "costs", totals(box.total).slice(1));
  section(panel, "attributes", node.a);
  section(panel, "reads", node.i.filter(Boolean).map((n) => described(n, true)));
  section(panel, "makes", node.u.filter(Boolean).map((n) => [n, VALUES.get(n) ?? "?"]));
}

function inside(box) {
  if (box.n !== null) return box.n < DATA.nodes.length ? [DATA.nodes[box.n]] : [];
  return box.m.flatMap(inside);
}

// --- searching ----------------------------------------------------------------------------------
function search(text) {
  const list = $("found");
  list.replaceChildren();
  const wanted = text.trim().toLowerCase();
  list.hidden = !wanted;
  if (!wanted) return;
  const found = [];
  const visit = (box) => {
    const node = box.n !== null ? DATA.nodes[box.n] : undefined;
    const words = [box.l, box.d, ...(node ? [node.n, ...node.u, ...node.p] : [])];
    if (box.parent && words.some((w) => w.toLowerCase().includes(wanted))) found.push(box);
    for (const member of box.m) visit(member);
  };
  visit(tree);
  for (const box of found.slice(0, MOST_FOUND)) {
    const row = html("li", {});
    const button = html("button", { type: "button" });
    button.append(html("b", {}, box.l), html("span", {}, ` ${box.d}`));
    button.addEventListener("click", () => {
      list.hidden = true;
      reveal(box);
      $("graph").focus();
    });
    row.append(button);
    list.append(row);
  }
  const more = found.length - MOST_FOUND;
  if (!found.length) list.append(html("li", {}, "nothing has this in its name"));
  else if (more > 0) list.append(html("li", {}, `and ${number.format(more)} more`));
}

// --- keys, pointers, buttons --------------------------------------------------------------------
function neighbour(key) {
  if (!chosen) return order[0];
  const edges = chosen.parent?.e ?? [];
  const own = chosen.parent?.m.indexOf(chosen);
  const at = (i) => chosen.parent.m[i];
  const down = edges.find((e) => e.a === own), up = edges.find((e) => e.b === own);
  if (key === "ArrowDown") return down ? at(down.b) : chosen;
  if (key === "ArrowUp") return up ? at(up.a) : chosen;
  const row = chosen.parent?.rows.find((r) => r.includes(own))?.filter((i) => i >= 0) ?? [];
  const next = row[row.indexOf(own) + (key === "ArrowRight" ? 1 : -1)];
  if (next !== undefined) return at(next);
  return key === "ArrowRight" && chosen.isOpen ? chosen.m[0] : chosen;
}

function onKey(event) {
  if (event.target.tagName === "INPUT") {
    if (event.key === "Escape") search((event.target.value = "")), $("graph").focus();
    if (event.key === "Enter" || event.key === "ArrowDown") $("found").querySelector("button")?.focus();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isButton = event.target.tagName === "BUTTON";
  if (isButton && (event.key === "Enter" || event.key === " ")) return;
  const acts = {
    "/": () => $("search").focus(),
    "+": () => zoom(1.25),
    "=": () => zoom(1.25),
    "-": () => zoom(0.8),
    0: () => fit(),
    g: () => !$("gradients").disabled && $("gradients").click(),
    t: () => $("theme").click(),
    c: () => $("collapse").click(),
    "?": () => $("help").showModal(),
    Enter: () => chosen && toggle(chosen),
    " ": () => chosen && toggle(chosen),
    Escape: () => (chosen?.parent?.parent ? choose(chosen.parent) : choose(null)),
  };
  for (const key of ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"])
    acts[key] = () => choose(neighbour(key));
  if (!(event.key in acts)) return;
  event.preventDefault();
  acts[event.key]();
}

function listenToPointers(area) {
  const down = new Map();
  let moved = 0;
  area.addEventListener("pointerdown", (e) => {
    down.set(e.pointerId, { x: e.clientX, y: e.clientY });
    moved = 0;
  });
  addEventListener("pointermove", (e) => {
    const before = down.get(e.pointerId);
    if (!before) return;
    const others = [...down].filter(([id]) => id !== e.pointerId).map(([, at]) => at);
    const now = { x: e.clientX, y: e.clientY };
    moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    if (moved > 4) area.classList.add("dragged");
    if (others.length) {
      const far = (p) => Math.hypot(p.x - others[0].x, p.y - others[0].y);
      const box = area.getBoundingClientRect();
      zoom(far(now) / Math.max(far(before), 1), others[0].x - box.x, others[0].y - box.y);
    } else (view.x += now.x - before.x), (view.y += now.y - before.y), move();
    down.set(e.pointerId, now);
  });
  const up = (e) => {
    down.delete(e.pointerId);
    setTimeout(() => area.classList.remove("dragged"));
  };
  addEventListener("pointerup", up);
  addEventListener("pointercancel", up);
  area.addEventListener("click", (e) => moved > 4 && e.stopPropagation(), true);
  area.addEventListener("click", () => choose(null));
  area.addEventListener(
    "wheel",
    (e) => {
      e.preventDefault();
      const box = area.getBoundingClientRect();
      zoom(Math.exp(-e.deltaY * 0.0015), e.clientX - box.x, e.clientY - box.y);
    },
    { passive: false },
  );
}

function open(isFull) {
  tree = isFull && DATA.full ? DATA.full : DATA.forward;
  chosen = null;
  prepare(tree);
  draw();
  fit();
  choose(null);
}

function begin() {
  const gradients = $("gradients");
  gradients.disabled = !DATA.full;
  gradients.parentElement.hidden = !DATA.full;
  gradients.addEventListener("change", () => open(gradients.checked));
  $("collapse").addEventListener("click", () => open(gradients.checked));
  $("fit").addEventListener("click", () => fit());
  $("closer").addEventListener("click", () => zoom(1.25));
  $("further").addEventListener("click", () => zoom(0.8));
  $("close").addEventListener("click", () => choose(null));
  $("keys").addEventListener("click", () => $("help").showModal());
  $("search").addEventListener("input", (e) => search(e.target.value));
  $("theme").addEventListener("click", () => {
    const style = document.documentElement;
    const isDark = style.dataset.theme
      ? style.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    style.dataset.theme = isDark ? "light" : "dark";
  });
  document.addEventListener("keydown", onKey);
  addEventListener("resize", move);
  listenToPointers($("graph"));
  open(false);
}

begin();
