// @ts-check
// Charts on canvas, each drawn from the table it stands with: lines, stacked areas, bars, a heat map, spans of time. The
// table stays behind it, one key press away, for whoever reads rather than looks.

/** @typedef {{ names: string[], rows: { name: string, values: (number | null)[], cells: string[] }[] }} Data */
/** @typedef {CanvasRenderingContext2D} Pen */
/** @typedef {{ x: number, y: number, w: number, h: number }} Box */

/** The colour a custom property has here. @param {string} name */
export function colour(name) {
  probe.style.color = `var(--${name})`;
  if (!probe.isConnected) document.body.append(probe);
  return getComputedStyle(probe).color;
}
const probe = document.createElement('span');
probe.className = 'hidden';

/** A colour for the n-th of several. @param {number} at */
export function hue(at) {
  return colour(`h${((at % 10) + 10) % 10}`);
}

/** Which hues the series of the chart being drawn have; those of their own number where nothing is said. @type {number[]} */
let series = [];

/** The colour of a chart's n-th series. @param {number} at */
function tone(at) {
  return hue(series[at] ?? at);
}

/** A canvas of a size in CSS pixels, sharp on every screen. @param {HTMLCanvasElement} canvas @param {number} w @param {number} h @returns {Pen} */
export function pen(canvas, w, h) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(w * scale));
  canvas.height = Math.max(1, Math.round(h * scale));
  canvas.style.height = `${h}px`;
  const drawn = /** @type {Pen} */ (canvas.getContext('2d'));
  drawn.setTransform(scale, 0, 0, scale, 0, 0);
  return drawn;
}

/** Draws every chart below a node. @param {ParentNode} root */
export function drawAll(root) {
  const found = root instanceof HTMLElement && root.dataset.chart ? [root] : [...root.querySelectorAll('[data-chart]')];
  for (const figure of /** @type {HTMLElement[]} */ (found)) stand(figure);
}

const ROOM = new ResizeObserver((all) => {
  for (const one of all) draw(/** @type {HTMLElement} */ (one.target));
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => drawAll(document));

/** Puts the canvas before the table, once. @param {HTMLElement} figure */
function stand(figure) {
  const table = figure.querySelector('table');
  if (!table || figure.querySelector('canvas')) return;
  const canvas = document.createElement('canvas');
  canvas.setAttribute('aria-hidden', 'true');
  const key = document.createElement('ul');
  key.className = 'key';
  key.setAttribute('aria-hidden', 'true');
  const details = document.createElement('details');
  const summary = document.createElement('summary');
  summary.textContent = 'Show as a table';
  const box = document.createElement('div');
  box.tabIndex = 0;
  box.setAttribute('role', 'region');
  box.setAttribute('aria-label', table.caption?.textContent ?? 'The figures drawn above');
  const rule = document.createElement('div');
  rule.className = 'rule';
  rule.hidden = true;
  rule.setAttribute('aria-hidden', 'true');
  canvas.addEventListener('pointermove', (event) => point(canvas, event.offsetX));
  canvas.addEventListener('pointerleave', () => point(canvas, -1));
  table.replaceWith(canvas, rule, key, details);
  box.append(table);
  details.append(summary, box);
  ROOM.observe(figure);
}

/** @param {HTMLTableElement} table @returns {Data} */
function read(table) {
  const names = [...(table.tHead?.rows[0]?.cells ?? [])].slice(1).map((cell) => cell.textContent ?? '');
  const rows = [...(table.tBodies[0]?.rows ?? [])].map((row) => {
    const [name, ...cells] = [...row.cells];
    const value = (/** @type {HTMLTableCellElement} */ cell) => {
      const text = cell.dataset.value ?? cell.textContent?.trim() ?? '';
      const number = Number(text.replace(/[^\d.eE+-]/g, ''));
      return text === '' || Number.isNaN(number) ? null : number;
    };
    return { name: name?.textContent?.trim() ?? '', values: cells.map(value), cells: cells.map((cell) => cell.textContent?.trim() ?? '') };
  });
  return { names, rows };
}

/** @param {HTMLElement} figure */
function draw(figure) {
  const canvas = figure.querySelector('canvas');
  const table = figure.querySelector('table');
  const key = /** @type {HTMLElement} */ (figure.querySelector('.key'));
  const w = figure.clientWidth;
  if (!canvas || !table || w < 40) return;
  const data = read(table);
  const kind = figure.dataset.chart;
  const rows = kind === 'gantt' ? lanes(data).length : kind === 'heat' || kind === 'bars' ? data.rows.length : 0;
  const h = kind === 'gantt' ? 34 + rows * 24 : kind === 'heat' ? 24 + rows * 20 : kind === 'bars' ? 8 + rows * 26 : 200;
  const ink = pen(canvas, w, h);
  ink.font = '12px system-ui, sans-serif';
  ink.textBaseline = 'middle';
  const units = (figure.dataset.units ?? '').split(' ');
  series = (figure.dataset.hues ?? '').split(' ').filter(Boolean).map(Number);
  const box = kind === 'line' ? lines(ink, data, w, h, units) : kind === 'area' ? areas(ink, data, w, h, units) : null;
  if (kind === 'bars') bars(ink, data, w);
  if (kind === 'heat') heat(ink, data, w);
  if (kind === 'gantt') gantt(ink, data, w, h);
  const marks = box ? data.names.map((name, at) => entry(name, tone(at))) : [];
  key.replaceChildren(...marks);
  if (box) pointed.set(canvas, { box, data, marks, rule: /** @type {HTMLElement} */ (figure.querySelector('.rule')) });
}

/** What is under the pointer of a line or an area: told in the key, which has its names already. @typedef {{ box: Box, data: Data, marks: HTMLElement[], rule: HTMLElement }} Pointed */
/** @type {WeakMap<HTMLCanvasElement, Pointed>} */
const pointed = new WeakMap();

/** @param {HTMLCanvasElement} canvas @param {number} px where the pointer is; nowhere below 0 */
function point(canvas, px) {
  const here = pointed.get(canvas);
  if (!here || !here.data.rows.length) return;
  const { box, data, marks, rule } = here;
  const last = data.rows.length - 1;
  const at = Math.max(0, Math.min(last, Math.round(((px - box.x) / Math.max(1, box.w)) * last)));
  const row = px < 0 ? undefined : data.rows[at];
  rule.hidden = !row;
  rule.style.left = `${box.x + (box.w * at) / Math.max(1, last)}px`;
  rule.dataset.at = row?.name ?? '';
  marks.forEach((mark, series) => {
    const value = row?.values[series];
    mark.lastChild?.replaceWith(`${data.names[series]}${row ? `  ${value === null || value === undefined ? '–' : brief(value)}` : ''}`);
  });
}

/** @param {string} name @param {string} paint */
function entry(name, paint) {
  const item = document.createElement('li');
  const mark = document.createElement('i');
  mark.style.background = paint;
  item.append(mark, name);
  return item;
}

/** A round number at or above. @param {number} most */
export function ceiling(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  const step = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find((step) => step * power >= most) ?? 10;
  return step * power;
}

/** A number as short as it can be told. @param {number} value */
export function brief(value) {
  const big = Math.abs(value);
  if (big >= 1e9) return `${+(value / 1e9).toFixed(1)}G`;
  if (big >= 1e6) return `${+(value / 1e6).toFixed(1)}M`;
  if (big >= 1e4) return `${+(value / 1e3).toFixed(1)}k`;
  if (big > 0 && big < 1e-3) return `${+(value * 1e6).toPrecision(3)}\u202fµ`;
  return String(+value.toPrecision(3));
}

/** Lines across, with their values. @param {Pen} ink @param {Box} box @param {number} top @param {string} unit @param {boolean} right */
function grid(ink, box, top, unit, right) {
  ink.strokeStyle = colour('line');
  ink.fillStyle = colour('soft');
  ink.lineWidth = 1;
  for (let step = 0; step <= 4; step++) {
    const y = Math.round(box.y + box.h - (box.h * step) / 4) + 0.5;
    if (!right) {
      ink.beginPath();
      ink.moveTo(box.x, y);
      ink.lineTo(box.x + box.w, y);
      ink.stroke();
    }
    ink.textAlign = right ? 'left' : 'right';
    ink.fillText(brief((top * step) / 4), right ? box.x + box.w + 6 : box.x - 6, y);
  }
  if (!unit) return;
  ink.textAlign = right ? 'right' : 'left';
  ink.fillText(unit, right ? box.x + box.w + 58 : 0, 7);
}

/** The first, middle and last names below. @param {Pen} ink @param {Box} box @param {string[]} names */
function feet(ink, box, names) {
  ink.fillStyle = colour('soft');
  const last = names.length - 1;
  const marks = last < 2 ? [0, last] : [0, Math.round(last / 2), last];
  for (const at of new Set(marks)) {
    ink.textAlign = last < 1 ? 'center' : at === 0 ? 'left' : at === last ? 'right' : 'center';
    ink.fillText(names[at] ?? '', box.x + (box.w * at) / Math.max(1, last), box.y + box.h + 13);
  }
}

/** With two units the second has its own scale, on the right. @param {Pen} ink @param {Data} data @param {number} w @param {number} h @param {string[]} units @returns {Box} */
function lines(ink, data, w, h, units) {
  const two = units.length > 1 && data.names.length > 1;
  const box = { x: 52, y: 20, w: w - 52 - (two ? 62 : 12), h: h - 46 };
  const most = (/** @type {number[]} */ of) => ceiling(Math.max(0, ...data.rows.flatMap((row) => of.map((at) => row.values[at] ?? 0))));
  const all = data.names.map((_, at) => at);
  const tops = two ? [units[0] === '%' ? 100 : most([0]), most([1])] : [most(all)];
  grid(ink, box, tops[0] ?? 1, units[0] ?? '', false);
  if (two) grid(ink, box, tops[1] ?? 1, units[1] ?? '', true);
  feet(ink, box, data.rows.map((row) => row.name));
  for (const at of all) {
    const top = (two ? tops[Math.min(at, 1)] : tops[0]) ?? 1;
    ink.strokeStyle = tone(at);
    ink.lineWidth = 2;
    ink.lineJoin = 'round';
    ink.beginPath();
    let down = true;
    data.rows.forEach((row, index) => {
      const value = row.values[at];
      if (value === null || value === undefined) { down = true; return; }
      const x = box.x + (box.w * index) / Math.max(1, data.rows.length - 1);
      const y = box.y + box.h - (box.h * value) / top;
      if (down) { ink.moveTo(x, y); ink.lineTo(x + 0.01, y); } else ink.lineTo(x, y);
      down = false;
    });
    ink.stroke();
    // A line of one point has no length.
    const only = data.rows.length === 1 ? data.rows[0]?.values[at] : undefined;
    if (only !== null && only !== undefined) {
      ink.beginPath();
      ink.fillStyle = tone(at);
      ink.arc(box.x + 4, box.y + box.h - (box.h * only) / top, Math.max(2, 4 - at), 0, 7);
      ink.fill();
    }
  }
  return box;
}

/** Areas one on another; columns where there are too few moments for an area to have a shape. @param {Pen} ink @param {Data} data @param {number} w @param {number} h @param {string[]} units @returns {Box} */
function areas(ink, data, w, h, units) {
  const box = { x: 58, y: 20, w: w - 70, h: h - 46 };
  const sums = data.rows.map((row) => row.values.reduce((/** @type {number} */ sum, value) => sum + (value ?? 0), 0));
  const top = ceiling(Math.max(0, ...sums));
  const names = data.rows.map((row) => row.name);
  grid(ink, box, top, units[0] ?? '', false);
  const few = data.rows.length < 5;
  const step = box.w / Math.max(1, few ? data.rows.length : data.rows.length - 1);
  const at = (/** @type {number} */ index) => box.x + (few ? index + 0.5 : index) * step;
  const tall = (/** @type {number} */ value) => (box.h * value) / top;
  feet(ink, few ? { ...box, x: box.x + step / 2, w: box.w - step } : box, names);
  const base = data.rows.map(() => 0);
  data.names.forEach((_, nth) => {
    ink.fillStyle = tone(nth);
    const above = data.rows.map((row, index) => (base[index] ?? 0) + Math.max(0, row.values[nth] ?? 0));
    if (few) {
      const wide = Math.max(1, Math.min(72, step - 2));
      above.forEach((to, index) => ink.fillRect(at(index) - wide / 2, box.y + box.h - tall(to), wide, tall(to - (base[index] ?? 0))));
    } else {
      ink.beginPath();
      above.forEach((to, index) => ink.lineTo(at(index), box.y + box.h - tall(to)));
      for (let index = base.length - 1; index >= 0; index--) ink.lineTo(at(index), box.y + box.h - tall(base[index] ?? 0));
      ink.globalAlpha = 0.75;
      ink.fill();
      ink.globalAlpha = 1;
    }
    above.forEach((to, index) => { base[index] = to; });
  });
  return few ? { ...box, x: box.x + step / 2, w: box.w - step } : box;
}

/** A text as long as there is room, with a sign where that is not all of it. @param {Pen} ink @param {string} text @param {number} w */
export function cut(ink, text, w) {
  if (ink.measureText(text).width <= w) return text;
  let end = text.length;
  while (end > 1 && ink.measureText(`${text.slice(0, end)}…`).width > w) end--;
  return `${text.slice(0, end)}…`;
}

/** @param {Pen} ink @param {Data} data @param {number} w */
function bars(ink, data, w) {
  const left = Math.min(220, w * 0.32);
  const most = Math.max(1e-9, ...data.rows.map((row) => row.values[0] ?? 0));
  data.rows.forEach((row, at) => {
    const y = 8 + at * 26;
    ink.textAlign = 'left';
    ink.fillStyle = colour('text');
    ink.fillText(cut(ink, row.name, left - 12), 0, y + 9);
    const long = Math.max(2, ((w - left - 110) * (row.values[0] ?? 0)) / most);
    ink.fillStyle = hue(0);
    ink.beginPath();
    ink.roundRect(left, y + 1, long, 16, 3);
    ink.fill();
    ink.fillStyle = colour('soft');
    ink.fillText(row.cells[0] ?? '', left + long + 8, y + 9);
  });
}

/** Rows by columns, each cell as dark as it is full; values are shares of a thousand. @param {Pen} ink @param {Data} data @param {number} w */
function heat(ink, data, w) {
  const left = Math.min(180, w * 0.25);
  const step = (w - left) / Math.max(1, data.names.length);
  ink.textAlign = 'left';
  data.names.forEach((name, at) => {
    if (step > 26 || at % Math.ceil(26 / step) === 0) { ink.fillStyle = colour('soft'); ink.fillText(cut(ink, name, Math.max(step, 26)), left + at * step, 10); }
  });
  data.rows.forEach((row, line) => {
    const y = 22 + line * 20;
    ink.fillStyle = colour('text');
    ink.fillText(cut(ink, row.name, left - 10), 0, y + 9);
    row.values.forEach((value, at) => {
      ink.fillStyle = colour('idle');
      ink.fillRect(left + at * step, y, step - 1, 18);
      if (value === null) return;
      ink.globalAlpha = 0.12 + 0.88 * Math.min(1, value / 1000);
      ink.fillStyle = hue(0);
      ink.fillRect(left + at * step, y, step - 1, 18);
      ink.globalAlpha = 1;
    });
  });
}

/** What the spans are, each once, in the order they come first. @param {Data} data */
function lanes(data) {
  return [...new Set(data.rows.map((row) => row.name))];
}

/** Spans from the first to the second column, milliseconds since 1970; those of one name lie on one line. @param {Pen} ink @param {Data} data @param {number} w @param {number} h */
function gantt(ink, data, w, h) {
  const left = Math.min(150, w * 0.25);
  const from = Math.min(...data.rows.map((row) => row.values[0] ?? Infinity));
  const to = Math.max(from + 1, ...data.rows.map((row) => row.values[1] ?? 0));
  const at = (/** @type {number} */ ms) => left + ((w - left - 8) * (ms - from)) / (to - from);
  const clock = (/** @type {number} */ ms) => to - from > 172_800_000
    ? new Date(ms).toLocaleDateString(undefined, { day: 'numeric', month: 'short' })
    : new Date(ms).toLocaleTimeString(undefined, to - from < 600_000 ? {} : { hour: '2-digit', minute: '2-digit' });
  ink.fillStyle = colour('soft');
  ink.strokeStyle = colour('line');
  for (let step = 0; step <= 4; step++) {
    const ms = from + ((to - from) * step) / 4;
    ink.textAlign = step === 0 ? 'left' : step === 4 ? 'right' : 'center';
    ink.fillText(clock(ms), at(ms), h - 10);
    ink.beginPath();
    ink.moveTo(Math.round(at(ms)) + 0.5, 0);
    ink.lineTo(Math.round(at(ms)) + 0.5, h - 22);
    ink.stroke();
  }
  const all = lanes(data);
  all.forEach((name, line) => {
    ink.fillStyle = colour('text');
    ink.textAlign = 'left';
    ink.fillText(cut(ink, name, left - 10), 0, 13 + line * 24);
  });
  for (const row of data.rows) {
    const line = all.indexOf(row.name);
    const [begin, end] = [row.values[0] ?? from, row.values[1] ?? to];
    ink.fillStyle = hue(line);
    ink.beginPath();
    ink.roundRect(at(begin), 4 + line * 24, Math.max(3, at(end) - at(begin)), 18, 4);
    ink.fill();
  }
}
