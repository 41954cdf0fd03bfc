// @ts-check
// The fleet, drawn: every GPU a tile with its slices to scale, and fewer, larger things as one moves away: nodes, then
// groups of them. Only what is in view is drawn, so a hundred thousand cost no more than a screenful.
import { colour, cut, hue, pen } from './chart.js';

/** @typedef {[number, number, number, number, number]} Piece holder, compute, VRAM, busy, VRAM in use */
/** @typedef {[string, number, number, number, string, number, number, Piece[]]} Tile id, node, class, VRAM, health, busy, used, slices */
/** @typedef {[string, string, string, string, string]} Place id, name, region, block, status */
/** @typedef {{ fleet: boolean, nodes: Place[], classes: string[], holders: string[], gpus: Tile[] }} Survey */
/** @typedef {{ x: number, y: number, w: number, h: number, gpus: number[] }} Spot */
/** @typedef {{ x: number, y: number, w: number, h: number, title: string, spots: Spot[], per: number, step: number, count: number, given: number }} Group given: thousandths of GPUs, -1 where not counted */

const box = /** @type {HTMLElement} */ (document.querySelector('[data-fleet]'));
const board = /** @type {HTMLElement} */ (document.getElementById('board'));
const canvas = /** @type {HTMLCanvasElement} */ (document.getElementById('canvas'));
const tip = /** @type {HTMLElement} */ (document.getElementById('tip'));
const legend = /** @type {HTMLElement} */ (document.getElementById('legend'));
const level = /** @type {HTMLElement} */ (document.getElementById('level'));
const groupBy = /** @type {HTMLSelectElement} */ (document.getElementById('group'));
const colourBy = /** @type {HTMLSelectElement} */ (document.getElementById('colour'));
const extent = document.createElement('div');

/** From far away to near: a group as one bar, a node as one block, then tiles by their size. */
const SIZES = /** @type {const} */ ([['group', 0], ['node', 26], ['gpu', 10], ['gpu', 18], ['gpu', 30], ['gpu', 46], ['gpu', 72], ['gpu', 108], ['gpu', 160]]);
const PAD = 14;
const HEAD = 24;
/** Between groups that stand side by side, and the least a heading needs. */
const BETWEEN = 28;
const LEAST = 250;

/** @type {Survey | null} */
let survey = null;
/** @type {Group[]} */
let groups = [];
let size = -1;
let chosen = -1;
let wanted = 0;
/** @type {Record<string, string>} */
let paint = {};
/** @type {string[]} */
let hues = [];

function paints() {
  paint = Object.fromEntries(['card', 'line', 'edge', 'text', 'soft', 'idle', 'other', 'good', 'warn', 'bad', 'accent'].map((name) => [name, colour(name)]));
  hues = Array.from({ length: 10 }, (_, at) => hue(at));
}

/** @param {Tile} gpu */
function key(gpu) {
  if (!survey) return '';
  const place = survey.nodes[gpu[1]];
  if (groupBy.value === 'class') return survey.classes[gpu[2]] ?? '';
  if (groupBy.value === 'region') return place?.[2] || 'no region';
  if (groupBy.value === 'block') return place?.[3] || 'no block';
  return place?.[1] ?? '';
}

/** A heading for each node is too much where there are many: then by fabric block, or by class. */
function choose() {
  if (!survey || survey.nodes.length <= 48) return;
  groupBy.value = survey.nodes.some((place) => place[3]) ? 'block' : 'class';
}

/** The board takes no more of the window than this. */
function tallest() {
  return Math.max(260, Math.round(window.innerHeight * 0.68));
}

/** How many groups stand side by side, how wide each is, and how many things it has in a row. @param {string} what @param {number} step @param {number} largest the most things of a group @param {number} wide */
function abreast(what, step, largest, wide) {
  const own = Math.max(LEAST, largest * step);
  const many = what === 'group' ? 1 : Math.max(1, Math.floor((wide + BETWEEN) / (own + BETWEEN)));
  const room = many > 1 ? Math.floor((wide + BETWEEN) / many) - BETWEEN : wide;
  return { many, room, per: Math.max(1, Math.floor((room + 4) / step)) };
}

/** The largest tiles with which everything is in view, or the smallest. @param {number[]} counts of each group */
function fitting(counts) {
  const room = tallest() - PAD;
  const wide = board.clientWidth - 2 * PAD;
  const [all, largest] = [counts.reduce((sum, count) => sum + count, 0), Math.max(1, ...counts)];
  for (let at = SIZES.length - 2; at > 2; at--) {
    const step = (SIZES[at]?.[1] ?? 10) + 4;
    const { many, per } = abreast('gpu', step, largest, wide);
    // As if the largest stood in every line: an estimate from above.
    const lines = many > 1 ? Math.ceil(counts.length / many) * Math.ceil(largest / per) : counts.reduce((sum, count) => sum + Math.ceil(count / per), 0);
    if (Math.ceil(counts.length / many) * (HEAD + 8) + lines * step <= room) return at;
  }
  if (all > 20_000) return 1;
  // It is scrolled in any case: then as large as the lines' width gives for nothing.
  const least = abreast('gpu', (SIZES[2]?.[1] ?? 10) + 2, largest, wide);
  const same = (/** @type {number} */ at) => {
    const next = abreast('gpu', (SIZES[at]?.[1] ?? 10) + 4, largest, wide);
    return next.many === least.many && next.per >= largest;
  };
  return least.many > 1 ? [6, 5, 4, 3].find(same) ?? 2 : 2;
}

/** Where everything lies. */
function arrange() {
  if (!survey) return;
  /** @type {Map<string, number[]>} */
  const by = new Map();
  survey.gpus.forEach((gpu, at) => {
    const name = key(gpu);
    const list = by.get(name);
    if (list) list.push(at); else by.set(name, [at]);
  });
  if (size < 0) size = fitting([...by.values()].map((gpus) => gpus.length));
  const [what, side] = SIZES[size] ?? ['gpu', 30];
  const wide = Math.max(120, board.clientWidth - 2 * PAD);
  groups = [];
  const w = what === 'group' ? wide : side;
  const h = what === 'group' ? 14 : side;
  const gap = what === 'group' || side >= 18 ? 4 : 2;
  const sorted = [...by].sort(([one], [other]) => one.localeCompare(other, undefined, { numeric: true })).map(([title, gpus]) => ({
    title,
    count: gpus.length,
    lots: what === 'gpu' ? gpus.map((at) => [at]) : what === 'group' ? [gpus] : [...byNode(gpus).values()],
  }));
  // Groups of few stand side by side, as many as there is room for.
  const largest = Math.max(1, ...sorted.map((group) => group.lots.length));
  const { many, room, per } = abreast(what, w + gap, largest, wide);
  let y = PAD / 2;
  for (let first = 0; first < sorted.length; first += many) {
    const line = sorted.slice(first, first + many);
    const tall = HEAD + Math.max(...line.map((group) => Math.ceil(group.lots.length / per))) * (h + gap) + 8;
    line.forEach(({ title, count, lots }, nth) => {
      const x = PAD + nth * (room + BETWEEN);
      const spots = lots.map((list, at) => ({ x: x + (at % per) * (w + gap), y: y + HEAD + Math.floor(at / per) * (h + gap), w, h, gpus: list }));
      groups.push({ x, y, w: room, h: tall, title, spots, per, step: h + gap, count, given: -1 });
    });
    y += tall;
  }
  const tall = Math.max(140, Math.min(tallest(), y + PAD));
  board.style.height = `${tall}px`;
  extent.style.height = `${Math.max(tall, y + PAD) - 2}px`;
  level.textContent = what === 'gpu' ? 'each tile a GPU' : what === 'node' ? 'each block a node' : 'each bar a group';
  keys();
  redraw();
}

/** @param {number[]} gpus */
function byNode(gpus) {
  /** @type {Map<number, number[]>} */
  const nodes = new Map();
  for (const at of gpus) {
    const node = survey?.gpus[at]?.[1] ?? 0;
    const list = nodes.get(node);
    if (list) list.push(at); else nodes.set(node, [at]);
  }
  return nodes;
}

function redraw() {
  if (!wanted) wanted = requestAnimationFrame(draw);
}

/** @type {CanvasRenderingContext2D | null} */
let held = null;
let area = '';

/** The canvas, empty; made anew only where its size changed, for that is slow. @param {number} w @param {number} h */
function sheet(w, h) {
  const now = `${w} ${h} ${window.devicePixelRatio}`;
  if (!held || now !== area) {
    held = pen(canvas, w, h);
    canvas.style.width = `${w}px`;
    area = now;
  }
  held.clearRect(0, 0, w, h);
  return held;
}

function draw() {
  wanted = 0;
  if (!survey) return;
  const [w, h] = [board.clientWidth, board.clientHeight];
  const ink = sheet(w, h);
  const top = board.scrollTop;
  ink.font = '600 12px system-ui, sans-serif';
  ink.textBaseline = 'middle';
  for (const group of groups) {
    if (group.y + group.h < top || group.y > top + h) continue;
    heading(ink, group, top);
    const from = Math.max(0, Math.floor((top - group.y - HEAD) / group.step)) * group.per;
    for (let at = from; at < group.spots.length; at++) {
      const spot = group.spots[at];
      if (!spot || spot.y > top + h) break;
      if (spot.gpus.length === 1 && (SIZES[size]?.[0] ?? 'gpu') === 'gpu') tile(ink, spot, top); else many(ink, spot, top);
    }
  }
}

/** @param {CanvasRenderingContext2D} ink @param {Group} group @param {number} top */
function heading(ink, group, top) {
  if (group.given < 0) group.given = group.spots.reduce((sum, spot) => spot.gpus.reduce((sum, at) => sum + share(survey?.gpus[at]), sum), 0);
  ink.fillStyle = paint.text ?? '';
  ink.textAlign = 'left';
  const title = cut(ink, group.title, group.w * 0.6);
  ink.fillText(title, group.x, group.y - top + HEAD / 2);
  const wide = ink.measureText(title).width;
  ink.fillStyle = paint.soft ?? '';
  ink.font = '12px system-ui, sans-serif';
  const said = `${group.count} GPU${group.count === 1 ? '' : 's'} · ${Math.round(group.given / Math.max(1, group.count) / 10)} % given away`;
  ink.fillText(cut(ink, said, group.w - wide - 12), group.x + wide + 12, group.y - top + HEAD / 2);
  ink.font = '600 12px system-ui, sans-serif';
}

/** @param {Tile | undefined} gpu */
function share(gpu) {
  return gpu ? gpu[7].reduce((sum, piece) => sum + piece[1], 0) : 0;
}

/** The holder pointed at in the legend, whose slices alone keep their colour; -1 is nobody. */
let lit = -1;

/** @param {Piece} piece */
function inkOf(piece) {
  if (lit >= 0 && piece[0] !== lit) return paint.line;
  if (colourBy.value === 'use') return piece[3] < 0 ? paint.other : heat(piece[3] / Math.max(1, piece[1]));
  return piece[0] < 0 ? paint.other : hues[piece[0] % 10];
}

/** @param {number} use */
function heat(use) {
  return use > 0.85 ? paint.bad : use > 0.5 ? paint.warn : paint.good;
}

/** A GPU: its slices as bands as high as their compute, each full as far as it is used. @param {CanvasRenderingContext2D} ink @param {Spot} spot @param {number} top */
function tile(ink, spot, top) {
  const at = spot.gpus[0] ?? 0;
  const gpu = survey?.gpus[at];
  if (!gpu) return;
  const [x, y, side] = [spot.x, spot.y - top, spot.w];
  ink.fillStyle = paint.idle ?? '';
  ink.fillRect(x, y, side, side);
  let from = y + side;
  for (const piece of gpu[7]) {
    const tall = (side * Math.min(1000, piece[1])) / 1000;
    from -= tall;
    ink.fillStyle = inkOf(piece) ?? '';
    ink.globalAlpha = piece[0] < 0 && colourBy.value === 'holder' ? 0.75 : 0.38;
    ink.fillRect(x, from, side, tall);
    ink.globalAlpha = 1;
    if (piece[3] >= 0) ink.fillRect(x, from, side * Math.min(1, piece[3] / Math.max(1, piece[1])), tall);
    if (side >= 18) { ink.fillStyle = paint.card ?? ''; ink.fillRect(x, from - 0.5, side, 1); }
    if (side >= 108 && tall >= 18) text(ink, piece[0] < 0 ? 'in use' : survey?.holders[piece[0]] ?? '', x, from + tall - 9, side);
  }
  outline(ink, gpu[4], x, y, side, side);
  if (side >= 72) label(ink, gpu, x, y, side);
  if (at === chosen) ring(ink, x, y, side, side);
}

/** A word within a tile. @param {CanvasRenderingContext2D} ink @param {string} word @param {number} x @param {number} y @param {number} side */
function text(ink, word, x, y, side) {
  ink.font = '11px system-ui, sans-serif';
  ink.fillStyle = paint.text ?? '';
  ink.textAlign = 'left';
  ink.save();
  ink.beginPath();
  ink.rect(x, y - 9, side - 4, 18);
  ink.clip();
  ink.fillText(word, x + 7, y);
  ink.restore();
  ink.font = '600 12px system-ui, sans-serif';
}

/** @param {CanvasRenderingContext2D} ink @param {Tile} gpu @param {number} x @param {number} y @param {number} side */
function label(ink, gpu, x, y, side) {
  const word = survey?.classes[gpu[2]] ?? '';
  ink.font = '11px system-ui, sans-serif';
  ink.fillStyle = paint.card ?? '';
  ink.globalAlpha = 0.82;
  ink.fillRect(x + 3, y + 3, Math.min(side - 6, ink.measureText(word).width + 8), 15);
  ink.globalAlpha = 1;
  text(ink, word, x, y + 11, side);
}

/** @param {CanvasRenderingContext2D} ink @param {string} health @param {number} x @param {number} y @param {number} w @param {number} h */
function outline(ink, health, x, y, w, h) {
  const wrong = health !== 'fine';
  // So small that a line around each would be all there is to see.
  if (!wrong && w < 18) return;
  ink.strokeStyle = (health === 'quarantined' || health === 'away' ? paint.bad : health === 'fine' ? paint.edge : paint.warn) ?? '';
  ink.globalAlpha = wrong ? 1 : 0.45;
  ink.lineWidth = wrong ? Math.max(1.5, Math.min(3, w / 12)) : 1;
  ink.setLineDash(health === 'away' || health === 'absent' ? [3, 2] : []);
  const half = ink.lineWidth / 2;
  ink.strokeRect(x + half, y + half, w - 2 * half, h - 2 * half);
  ink.setLineDash([]);
  ink.globalAlpha = 1;
}

/** @param {CanvasRenderingContext2D} ink @param {number} x @param {number} y @param {number} w @param {number} h */
function ring(ink, x, y, w, h) {
  ink.strokeStyle = paint.text ?? '';
  ink.lineWidth = 2;
  ink.strokeRect(x - 2, y - 2, w + 4, h + 4);
}

/** Many GPUs as one: shares of their holders one above the other, and the worst health. @param {CanvasRenderingContext2D} ink @param {Spot} spot @param {number} top */
function many(ink, spot, top) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  let worst = 'fine';
  for (const at of spot.gpus) {
    const gpu = survey?.gpus[at];
    if (!gpu) continue;
    if (gpu[4] !== 'fine' && worst !== 'quarantined') worst = gpu[4];
    for (const piece of gpu[7]) {
      const tone = inkOf(piece) ?? '';
      sums.set(tone, (sums.get(tone) ?? 0) + piece[1]);
    }
  }
  const [x, y, w, h] = [spot.x, spot.y - top, spot.w, spot.h];
  ink.fillStyle = paint.idle ?? '';
  ink.fillRect(x, y, w, h);
  let from = 0;
  for (const [tone, sum] of [...sums].sort(([one], [other]) => one.localeCompare(other))) {
    const part = sum / 1000 / spot.gpus.length;
    ink.fillStyle = tone;
    if (w > h) ink.fillRect(x + from * w, y, part * w, h); else ink.fillRect(x, y + h - (from + part) * h, w, part * h);
    from += part;
  }
  outline(ink, worst, x, y, w, h);
  if (spot.gpus.includes(chosen)) ring(ink, x, y, w, h);
}

function keys() {
  if (!survey) return;
  const entries = colourBy.value === 'use'
    ? [['up to half of its share', paint.good], ['up to 85 %', paint.warn], ['nearly all', paint.bad], ['not read', paint.other]]
    : [...survey.holders.map((name, at) => [name, hues[at % 10]]), ['in use', paint.other]];
  const marks = [...entries.slice(0, 24), ['free', paint.idle]].map(([name, tone]) => mark(name ?? '', tone ?? '', ''));
  if (colourBy.value !== 'use') marks.slice(0, Math.min(24, survey.holders.length)).forEach((item, at) => light(item, at));
  if (survey.gpus.some((gpu) => gpu[4] !== 'fine')) marks.push(mark('out of service', '', paint.bad ?? ''), mark('cordoned', '', paint.warn ?? ''));
  legend.replaceChildren(...marks);
}

/** Pointing at a holder dims everybody else; a click keeps it so. @param {HTMLElement} item @param {number} holder */
function light(item, holder) {
  const show = (/** @type {number} */ who) => { lit = who; redraw(); };
  item.classList.add('lights');
  item.classList.toggle('kept', kept === holder);
  item.addEventListener('mouseenter', () => show(holder));
  item.addEventListener('mouseleave', () => show(kept));
  item.addEventListener('click', () => {
    kept = kept === holder ? -1 : holder;
    for (const other of legend.children) other.classList.toggle('kept', other === item && kept === holder);
    show(kept);
  });
}
let kept = -1;

/** @param {string} name @param {string} tone @param {string} edge */
function mark(name, tone, edge) {
  const item = document.createElement('li');
  const dot = document.createElement('i');
  dot.style.background = tone;
  dot.style.borderColor = edge || tone;
  const text = document.createElement('bdi');
  text.textContent = name;
  item.append(dot, text);
  return item;
}

/** @param {number} x @param {number} y */
function spotAt(x, y) {
  const deep = y + board.scrollTop;
  const group = groups.find((group) => deep >= group.y && deep < group.y + group.h && x >= group.x && x < group.x + group.w + BETWEEN);
  return group?.spots.find((spot) => x >= spot.x && x < spot.x + spot.w && deep >= spot.y && deep < spot.y + spot.h);
}

/** @param {Spot} spot */
function tell(spot) {
  const gpu = survey?.gpus[spot.gpus[0] ?? 0];
  if (!survey || !gpu) return [];
  const place = survey.nodes[gpu[1]];
  if (spot.gpus.length > 1) return [place?.[1] ?? '', `${spot.gpus.length} GPUs, ${Math.round(spot.gpus.reduce((sum, at) => sum + share(survey?.gpus[at]), 0) / spot.gpus.length / 10)} % given away`];
  const said = [`${survey.classes[gpu[2]]} on ${place?.[1]}`, `${gpu[0]} · ${gpu[4].replace('_', ' ')}${gpu[5] >= 0 ? ` · ${gpu[5] / 10} % busy` : ''}`];
  for (const piece of gpu[7].slice(0, 8)) {
    const who = piece[0] < 0 ? 'in use' : survey.holders[piece[0]];
    said.push(`${who}: ${piece[1] / 10} % of compute, ${piece[2]} MiB${piece[3] >= 0 ? `, ${piece[3] / 10} % busy` : ''}`);
  }
  if (!gpu[7].length) said.push('free');
  return said;
}

/** @param {Spot | undefined} spot @param {number} x @param {number} y */
function hint(spot, x, y) {
  tip.hidden = !spot;
  if (!spot) return;
  tip.replaceChildren(...tell(spot).map((line, at) => {
    const part = document.createElement(at ? 'div' : 'strong');
    const text = document.createElement('bdi');
    text.textContent = line;
    part.append(text);
    return part;
  }));
  tip.style.left = `${Math.max(4, Math.min(x + 14, board.clientWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${board.scrollTop + Math.max(4, Math.min(y + 14, board.clientHeight - tip.offsetHeight - 8))}px`;
}

/** @param {Spot} spot */
function open(spot) {
  const gpu = survey?.gpus[spot.gpus[0] ?? 0];
  if (!gpu) return;
  if (spot.gpus.length > 1) { chosen = spot.gpus[0] ?? -1; zoom(1); return; }
  location.href = `/console/fleet/${encodeURIComponent(gpu[0])}`;
}

/** @param {number} by */
function zoom(by) {
  size = Math.max(0, Math.min(SIZES.length - 1, size + by));
  arrange();
}

/** Moves the choice by arrow keys, spot by spot. @param {string} press */
function move(press) {
  const spots = groups.flatMap((group) => group.spots.map((spot) => ({ spot, per: group.per })));
  const at = Math.max(0, spots.findIndex(({ spot }) => spot.gpus.includes(chosen)));
  const per = spots[at]?.per ?? 1;
  const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: per, ArrowUp: -per }[press] ?? 0;
  const next = spots[chosen < 0 ? 0 : Math.max(0, Math.min(spots.length - 1, at + by))]?.spot;
  if (!next) return;
  chosen = next.gpus[0] ?? -1;
  if (next.y < board.scrollTop + HEAD) board.scrollTop = next.y - HEAD;
  if (next.y + next.h > board.scrollTop + board.clientHeight) board.scrollTop = next.y + next.h - board.clientHeight + 8;
  hint(next, next.x + next.w, next.y - board.scrollTop);
  canvas.setAttribute('aria-label', tell(next).join('; '));
  redraw();
}

canvas.addEventListener('keydown', (event) => {
  if (event.key.startsWith('Arrow')) { event.preventDefault(); move(event.key); }
  if (event.key === '+' || event.key === '=') zoom(1);
  if (event.key === '-') zoom(-1);
  const spot = groups.flatMap((group) => group.spots).find((spot) => spot.gpus.includes(chosen));
  if (event.key === 'Enter' && spot) open(spot);
});
canvas.addEventListener('mousemove', (event) => hint(spotAt(event.offsetX, event.offsetY), event.offsetX, event.offsetY));
canvas.addEventListener('mouseleave', () => hint(undefined, 0, 0));
canvas.addEventListener('click', (event) => {
  const spot = spotAt(event.offsetX, event.offsetY);
  if (spot) open(spot);
});
board.addEventListener('scroll', redraw, { passive: true });
groupBy.addEventListener('change', () => { size = -1; arrange(); });
colourBy.addEventListener('change', () => { keys(); redraw(); });
document.getElementById('smaller')?.addEventListener('click', () => zoom(-1));
document.getElementById('larger')?.addEventListener('click', () => zoom(1));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { paints(); keys(); redraw(); });
let wide = 0;
new ResizeObserver(() => {
  if (!survey || board.clientWidth === wide) return;
  wide = board.clientWidth;
  arrange();
}).observe(board);

/** @type {EventSource | null} */
let stream = null;
function listen() {
  stream?.close();
  stream = null;
  if (document.hidden) return;
  stream = new EventSource('/console/fleet/live');
  stream.addEventListener('all', (event) => {
    const first = !survey;
    survey = JSON.parse(/** @type {MessageEvent} */ (event).data);
    if (first) choose();
    arrange();
    box.dataset.drawn = String(survey?.gpus.length ?? 0);
  });
  stream.addEventListener('some', (event) => {
    if (!survey) return;
    for (const [at, tile] of JSON.parse(/** @type {MessageEvent} */ (event).data)) survey.gpus[at] = tile;
    for (const group of groups) group.given = -1;
    redraw();
  });
}

extent.className = 'extent';
extent.append(canvas, tip);
board.prepend(extent);
box.hidden = false;
document.getElementById('table')?.removeAttribute('open');
paints();
document.addEventListener('visibilitychange', listen);
window.addEventListener('pagehide', () => stream?.close());
listen();
