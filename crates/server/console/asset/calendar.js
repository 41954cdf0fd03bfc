// @ts-check
// A week of windows drawn in the reader's zone, from the table it stands with. Dragging over it fills in the form below.
import { colour, hue, pen } from './chart.js';
import { say } from './page.js';

/** @typedef {{ name: string, from: number, until: number, gpus: number, href: string, row: number }} Span */

const box = /** @type {HTMLElement} */ (document.querySelector('[data-week]'));
const table = /** @type {HTMLTableElement} */ (box.querySelector('table'));
const canvas = document.createElement('canvas');
const books = box.dataset.books !== undefined;
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const LEFT = 8;
const HEAD = 26;
const LANE = 34;
const ROW = 28;
const SNAP = 30 * 60_000;

/** The same days where the reader is. */
const first = here(Number(box.dataset.from));
const days = Array.from({ length: 8 }, (_, at) => new Date(first.getFullYear(), first.getMonth(), first.getDate() + at).getTime());
const [from, until] = [days[0] ?? 0, days[7] ?? 1];

/** @param {number} utc */
function here(utc) {
  const day = new Date(utc);
  return new Date(day.getUTCFullYear(), day.getUTCMonth(), day.getUTCDate());
}

/** @type {Span[]} */
const spans = [...table.tBodies[0]?.rows ?? []].filter((row) => row.dataset.from).map((row) => ({
  name: row.cells[0]?.textContent?.trim() ?? '',
  href: row.querySelector('a')?.getAttribute('href') ?? '',
  from: Number(row.dataset.from),
  until: Number(row.dataset.until),
  gpus: Number(row.dataset.gpus),
  row: 0,
})).filter((span) => span.until > from && span.from < until);

/** Each window in the first row where it is alone. */
function pack() {
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

const rows = pack();
/** @type {[number, number] | null} */
let chosen = null;

const width = () => box.clientWidth - 2 * LEFT;
const height = () => HEAD + (books ? LANE : 8) + Math.max(4, rows) * ROW + 6;
/** @param {number} at */
const x = (at) => LEFT + (width() * (Math.max(from, Math.min(until, at)) - from)) / (until - from);
/** @param {number} px */
const when = (px) => Math.round((from + ((px - LEFT) / width()) * (until - from)) / SNAP) * SNAP;

function draw() {
  const [w, h] = [box.clientWidth, height()];
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
  spans.forEach((span, at) => {
    const [left, wide] = [x(span.from), Math.max(4, x(span.until) - x(span.from) - 2)];
    const y = top + span.row * ROW;
    ink.fillStyle = hue(at);
    ink.beginPath();
    ink.roundRect(left, y, wide, ROW - 5, 4);
    ink.fill();
    ink.save();
    ink.clip();
    ink.fillStyle = colour('card');
    ink.font = '600 12px system-ui, sans-serif';
    ink.fillText(`${span.name} · ${span.gpus}`, left + 7, y + (ROW - 5) / 2);
    ink.restore();
  });
}

/** How much is free, hour by hour, thousandths. */
const free = (box.dataset.free ?? '').split(' ').filter(Boolean).map(Number);
const freeFrom = Number(box.dataset.freeFrom);

/** What is free is shaded green, and less so as less of it is. @param {CanvasRenderingContext2D} ink @param {number} h */
function shade(ink, h) {
  free.forEach((permille, at) => {
    const start = freeFrom + at * 3_600_000;
    if (start + 3_600_000 <= from || start >= until) return;
    ink.globalAlpha = permille > 0 ? 0.04 + 0.14 * (permille / 1000) : 0.16;
    ink.fillStyle = colour(permille > 0 ? 'good' : 'bad');
    const left = Math.round(x(start));
    ink.fillRect(left, HEAD, Math.round(x(start + 3_600_000)) - left, h - HEAD);
  });
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

let dragging = false;
canvas.addEventListener('pointerdown', (event) => {
  const span = under(event);
  if (span) { location.href = span.href; return; }
  if (!books) return;
  dragging = true;
  canvas.setPointerCapture(event.pointerId);
  chosen = [when(event.offsetX), when(event.offsetX)];
});
canvas.addEventListener('pointermove', (event) => {
  canvas.style.cursor = under(event) ? 'pointer' : books ? 'crosshair' : 'default';
  if (!dragging || !chosen) return;
  chosen[1] = when(event.offsetX);
  draw();
});
canvas.addEventListener('pointerup', () => {
  if (!dragging || !chosen) return;
  dragging = false;
  const [start, end] = [Math.min(...chosen), Math.max(...chosen)];
  fill('start', wall(start));
  fill('end', wall(Math.max(end, start + 2 * SNAP)));
  chosen = [start, Math.max(end, start + 2 * SNAP)];
  draw();
  say(`From ${wall(start)} until ${wall(end)}`);
  document.getElementById('name')?.focus();
});

/** @param {PointerEvent} event */
function under(event) {
  const top = HEAD + (books ? LANE : 8);
  const row = Math.floor((event.offsetY - top) / ROW);
  return event.offsetY < top ? undefined : spans.find((span) => span.row === row && event.offsetX >= x(span.from) && event.offsetX <= x(span.until));
}

const details = document.createElement('details');
const summary = document.createElement('summary');
summary.textContent = 'Show as a table';
canvas.setAttribute('aria-hidden', 'true');
const wrap = table.parentElement ?? table;
wrap.replaceWith(canvas, details);
details.append(summary, wrap);
const named = document.getElementById('zone');
if (named) named.textContent = `in ${zone}`;
if (!/** @type {HTMLInputElement | null} */ (document.getElementById('tz'))?.value) fill('tz', zone);
new ResizeObserver(draw).observe(box);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
