// @ts-check
// Keeps a page as it would be were it loaded now: when the journal tells of something of the page's kinds, the page is
// asked for anew and the parts that changed take the place of the old ones. What pages look like is decided by the server.
import { localise, reach } from './page.js';
import { drawAll } from './chart.js';
import { parse } from './html.js';

const main = /** @type {HTMLElement} */ (document.querySelector('main[data-watch]'));
const kinds = (main.dataset.watch ?? '').split(' ').filter(Boolean);
const every = Number(main.dataset.every ?? 0) * 1000;
const LEAST_MS = 900;

let last = 0;
let waiting = 0;
let asking = false;
/** @type {AbortController | null} */
let stop = null;

/** Asks for the page soon, however often it is wanted. */
function soon() {
  if (waiting || document.hidden) return;
  waiting = window.setTimeout(refresh, Math.max(150, last + LEAST_MS - Date.now()));
}

async function refresh() {
  waiting = 0;
  if (asking) return soon();
  asking = true;
  try {
    const answer = await fetch(location.href, { headers: { 'x-tenure-live': '1' }, cache: 'no-store' });
    if (answer.status === 401) return location.reload();
    if (answer.ok) take(await answer.text());
  } catch {
    // The server is away; the stream says when it is back.
  } finally {
    asking = false;
    last = Date.now();
  }
}

/** Puts the parts that changed into the page. @param {string} text */
function take(text) {
  const fresh = parse(text);
  for (const part of fresh.querySelectorAll('[data-live][id]')) {
    const here = document.getElementById(part.id);
    if (!here || here.querySelector('[data-busy]')) continue;
    if (here.contains(document.activeElement) && here.querySelector('input:not([type="hidden"]), select, textarea')) continue;
    const key = part.outerHTML;
    if (shown.get(part.id) === key) continue;
    const first = !shown.has(part.id);
    shown.set(part.id, key);
    if (first && same(here, part)) continue;
    replace(here, /** @type {HTMLElement} */ (document.importNode(part, true)));
  }
}

/** What each part looked like as it was sent. @type {Map<string, string>} */
const shown = new Map();

/** Whether a part says what it said when the page was loaded. @param {Element} here @param {Element} part */
function same(here, part) {
  const probe = /** @type {Element} */ (part.cloneNode(true));
  localise(probe);
  return probe.textContent === here.textContent;
}

/** Keeps focus and open details where they were. @param {HTMLElement} here @param {HTMLElement} part */
function replace(here, part) {
  const focus = document.activeElement;
  const href = here.contains(focus) ? focus?.getAttribute('href') : null;
  const open = [...here.querySelectorAll('details')].map((details) => details.open);
  const left = [...here.querySelectorAll('.scroll, pre')].map((box) => [box.scrollLeft, box.scrollTop]);
  localise(part);
  here.replaceWith(part);
  drawAll(part);
  part.dispatchEvent(new CustomEvent('tenure-fresh', { bubbles: true }));
  reach(part);
  part.querySelectorAll('details').forEach((details, at) => { details.open = open[at] ?? details.open; });
  part.querySelectorAll('.scroll, pre').forEach((box, at) => box.scrollTo(left[at]?.[0] ?? 0, left[at]?.[1] ?? 0));
  if (href) /** @type {HTMLElement | null} */ ([...part.querySelectorAll('a[href]')].find((link) => link.getAttribute('href') === href))?.focus();
}

/** Listens to the journal while the page is seen: browsers hold few connections to one server. */
async function listen() {
  stop?.abort();
  stop = null;
  if (document.hidden) return;
  const mine = stop = new AbortController();
  soon();
  while (!mine.signal.aborted) {
    try {
      await hear(mine.signal);
    } catch {
      // It comes back by itself, and the page with it.
    }
    await new Promise((done) => setTimeout(done, 2000));
    if (!mine.signal.aborted) soon();
  }
}

/** Reads one stream to its end. An event begins with a line that names its kind. @param {AbortSignal} signal */
async function hear(signal) {
  const answer = await fetch('/console/api/v1/events', { signal });
  if (answer.status === 401) return location.reload();
  const lines = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await lines?.read() ?? { done: true, value: '' };
    if (done) return;
    const all = (rest + value).split('\n');
    rest = all.pop() ?? '';
    const told = all.filter((line) => line.startsWith('event: ')).map((line) => line.slice(7));
    if (told.some((kind) => kinds.some((of) => kind.startsWith(of)))) soon();
  }
}

document.addEventListener('visibilitychange', listen);
window.addEventListener('pagehide', () => stop?.abort());
listen();
if (every) window.setInterval(soon, every);
