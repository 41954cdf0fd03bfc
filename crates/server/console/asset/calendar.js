// @ts-check
// A week of windows drawn in the reader's zone, from the table it stands with. Dragging over it fills in the form below.
import { colour, cut, hue, pen } from './chart.js';
import { say } from './page.js';

/** @typedef {{ name: string, from: number, until: number, gpus: number, href: string, row: number }} Span */

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const LEFT = 8;
const HEAD = 26;
const LANE = 34;
const ROW = 28;
const SNAP = 30 * 60_000;

/** What was dragged over; it stays while the week is kept live. @type {[number, number] | null} */
let chosen = null;
let dragging = false;

/** @param {number} at */
function wall(at) {
  const day = new Date(at);
  const two = (/** @type {number} */ number) => String(number).padStart(2, '0');
  return `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())}T${two(day.getHours())}:${two(day.getMinutes())}`;
}

/** @param {string} id @param {string} value */
function fill(id, value) {
  const field = document.getElementById(id);
  if (field instanceof HTMLInputElement) field.value = value;
}

/** Each window in the first row where it is alone. @param {Span[]} spans */
function pack(spans) {
  /** @type {number[]} */
  const ends = [];
  for (const span of spans.sort((one, other) => one.from - other.from)) {
    let row = ends.findIndex((end) => end <= span.from);
    if (row < 0) row = ends.length;
    ends[row] = span.until;
    span.row = row;
  }
  return ends.length;
}

/** @param {HTMLTableElement} table @returns {Span[]} */
function read(table) {
  return [...table.tBodies[0]?.rows ?? []].filter((row) => row.dataset.from).map((row) => ({
    name: row.cells[0]?.textContent?.trim() ?? '',
    href: row.querySelector('a')?.getAttribute('href') ?? '',
    from: Number(row.dataset.from),
    until: Number(row.dataset.until),
    gpus: Number(row.dataset.gpus),
    row: 0,
  }));
}

/** Puts a drawing in the place of a week's table. @param {HTMLElement} box */
function stand(box) {
  const table = /** @type {HTMLTableElement} */ (box.querySelector('table'));
  const canvas = document.createElement('canvas');
  const books = box.dataset.books !== undefined;
  const monday = new Date(Number(box.dataset.from));
  /** The same days where the reader is. */
  const days = Array.from({ length: 8 }, (_, at) => new Date(monday.getUTCFullYear(), monday.getUTCMonth(), monday.getUTCDate() + at).getTime());
  const [from, until] = [days[0] ?? 0, days[7] ?? 1];
  const spans = read(table).filter((span) => span.until > from && span.from < until);
  const rows = pack(spans);
  /** How much is free, step by step, thousandths. */
  const free = (box.dataset.free ?? '').split(' ').filter(Boolean).map(Number);
  const [freeFrom, freeStep] = [Number(box.dataset.freeFrom), Number(box.dataset.freeStep)];

  const width = () => box.clientWidth - 2 * LEFT;
  const height = () => HEAD + (books ? LANE : 8) + Math.max(4, rows) * ROW + 6;
  /** @param {number} at */
  const x = (at) => LEFT + (width() * (Math.max(from, Math.min(until, at)) - from)) / (until - from);
  /** @param {number} px */
  const when = (px) => Math.round((from + ((px - LEFT) / width()) * (until - from)) / SNAP) * SNAP;

  function draw() {
    const [w, h] = [box.clientWidth, height()];
    if (w < 40) return;
    const ink = pen(canvas, w, h);
    canvas.style.width = '100%';
    ink.font = '12px system-ui, sans-serif';
    ink.textBaseline = 'middle';
    ink.textAlign = 'left';
    const top = HEAD + (books ? LANE : 8);
    shade(ink, h);
    days.slice(0, 7).forEach((day, at) => {
      ink.fillStyle = colour('soft');
      ink.fillText(new Date(day).toLocaleDateString(undefined, { weekday: 'short', day: 'numeric', month: w > 700 ? 'short' : undefined }), x(day) + 4, HEAD / 2);
      ink.strokeStyle = colour('line');
      ink.beginPath();
      ink.moveTo(Math.round(x(day)) + 0.5, at ? 0 : HEAD);
      ink.lineTo(Math.round(x(day)) + 0.5, h);
      ink.stroke();
    });
    const now = Date.now();
    if (now > from && now < until) {
      ink.fillStyle = colour('bad');
      ink.fillRect(Math.round(x(now)), HEAD - 4, 2, h - HEAD);
    }
    if (books) lane(ink);
    spans.forEach((span, at) => bar(ink, span, at, top + span.row * ROW));
  }

  /** A window, with its name in it where that has room, else beside it as far as nothing stands there. @param {CanvasRenderingContext2D} ink @param {Span} span @param {number} at @param {number} y */
  function bar(ink, span, at, y) {
    const [left, wide] = [x(span.from), Math.max(4, x(span.until) - x(span.from) - 2)];
    ink.fillStyle = hue(at);
    ink.beginPath();
    ink.roundRect(left, y, wide, ROW - 5, 4);
    ink.fill();
    ink.font = '600 12px system-ui, sans-serif';
    const said = `${span.name} · ${span.gpus}`;
    const long = ink.measureText(said).width;
    const next = spans.filter((other) => other.row === span.row && other.from >= span.until).map((other) => x(other.from));
    const beside = Math.min(width() + LEFT, ...next) - (left + wide) - 10;
    const inside = long <= wide - 12 || beside < Math.min(long, 60);
    ink.fillStyle = inside ? colour('card') : colour('text');
    if (inside && wide > 24) ink.fillText(cut(ink, said, wide - 12), left + 6, y + (ROW - 5) / 2);
    if (!inside) ink.fillText(cut(ink, said, beside), left + wide + 5, y + (ROW - 5) / 2);
    ink.font = '12px system-ui, sans-serif';
  }

  /** What is free is shaded green, and less so as less of it is; red is none. @param {CanvasRenderingContext2D} ink @param {number} h */
  function shade(ink, h) {
    for (let at = 0; at < free.length;) {
      let end = at + 1;
      while (end < free.length && free[end] === free[at]) end++;
      const permille = free[at] ?? 0;
      const [start, over] = [freeFrom + at * freeStep, freeFrom + end * freeStep];
      at = end;
      if (over <= from || start >= until) continue;
      ink.globalAlpha = permille > 0 ? 0.04 + 0.14 * (permille / 1000) : 0.16;
      ink.fillStyle = colour(permille > 0 ? 'good' : 'bad');
      const left = Math.round(x(start));
      ink.fillRect(left, HEAD, Math.round(x(over)) - left, h - HEAD);
    }
    ink.globalAlpha = 1;
  }

  /** Where one drags. @param {CanvasRenderingContext2D} ink */
  function lane(ink) {
    ink.strokeStyle = colour('edge');
    ink.setLineDash([4, 3]);
    ink.strokeRect(LEFT + 0.5, HEAD + 2.5, width() - 1, LANE - 9);
    ink.setLineDash([]);
    ink.fillStyle = colour('soft');
    if (!chosen) ink.fillText('Drag here to book', LEFT + 10, HEAD + LANE / 2 - 2);
    if (!chosen) return;
    const [left, right] = [x(Math.min(...chosen)), x(Math.max(...chosen))];
    ink.fillStyle = colour('accent');
    ink.beginPath();
    ink.roundRect(left, HEAD + 2, Math.max(3, right - left), LANE - 8, 4);
    ink.fill();
    // From when to when, beside it where there is room.
    const clock = (/** @type {number} */ at) => new Date(at).toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit' });
    const said = `${clock(Math.min(...chosen))} – ${clock(Math.max(...chosen))}`;
    const room = width() - right > 110;
    ink.fillStyle = colour('text');
    ink.textAlign = room ? 'left' : 'right';
    ink.fillText(said, room ? right + 6 : left - 6, HEAD + LANE / 2 - 2);
    ink.textAlign = 'left';
  }

  /** @param {PointerEvent} event */
  function under(event) {
    const top = HEAD + (books ? LANE : 8);
    const row = Math.floor((event.offsetY - top) / ROW);
    return event.offsetY < top ? undefined : spans.find((span) => span.row === row && event.offsetX >= x(span.from) && event.offsetX <= x(span.until));
  }

  canvas.addEventListener('pointerdown', (event) => {
    const span = under(event);
    if (span) { location.href = span.href; return; }
    if (!books) return;
    dragging = true;
    // What is being dragged over is not replaced under the pointer.
    box.dataset.busy = '';
    canvas.setPointerCapture(event.pointerId);
    chosen = [when(event.offsetX), when(event.offsetX)];
  });
  canvas.addEventListener('pointermove', (event) => {
    const span = under(event);
    canvas.style.cursor = span ? 'pointer' : books ? 'crosshair' : 'default';
    canvas.title = span ? `${span.name} · ${span.gpus}` : '';
    if (!dragging || !chosen) return;
    chosen[1] = when(event.offsetX);
    draw();
  });
  canvas.addEventListener('pointerup', () => {
    delete box.dataset.busy;
    if (!dragging || !chosen) return;
    dragging = false;
    const start = Math.min(...chosen);
    const end = Math.max(Math.max(...chosen), start + 2 * SNAP);
    fill('start', wall(start));
    fill('end', wall(end));
    chosen = [start, end];
    draw();
    say(`From ${wall(start)} until ${wall(end)}`);
    document.getElementById('name')?.focus();
  });
  canvas.addEventListener('pointercancel', () => { dragging = false; delete box.dataset.busy; });

  const details = document.createElement('details');
  const summary = document.createElement('summary');
  summary.textContent = 'Show as a table';
  canvas.setAttribute('aria-hidden', 'true');
  const wrap = table.parentElement ?? table;
  wrap.replaceWith(canvas, ...(free.length ? [legend()] : []), details);
  details.append(summary, wrap);
  const named = document.getElementById('zone');
  if (named) named.textContent = `in ${zone}`;
  new ResizeObserver(draw).observe(box);
  redraw = draw;
}

/** What the shades mean. */
function legend() {
  const list = document.createElement('ul');
  list.className = 'legend shades';
  for (const [name, word] of [['some', 'free: the greener, the more of it'], ['none', 'all booked']]) {
    const item = document.createElement('li');
    const mark = document.createElement('i');
    mark.className = name ?? '';
    item.append(mark, word ?? '');
    list.append(item);
  }
  return list;
}

let redraw = () => {};
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => redraw());
document.addEventListener('tenure-fresh', (event) => {
  const box = /** @type {HTMLElement} */ (event.target).querySelector('[data-week]');
  if (box instanceof HTMLElement) stand(box);
});
const box = document.querySelector('[data-week]');
if (box instanceof HTMLElement) stand(box);
if (!/** @type {HTMLInputElement | null} */ (document.getElementById('tz'))?.value) fill('tz', zone);
