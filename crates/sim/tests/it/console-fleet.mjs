// The fleet page before fleets of different sizes: what a frame costs, with sixty updates a second. Prints the figures;
// holds that a frame costs what it shows, and not what there is. SERVERS is `GPUS ADDRESS KEY`, one a line, the smallest
// first.
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'], timeout: 120_000 });

/** Before any script of the page: what is in a frame is timed, and whoever listens to the fleet can be told things. */
function watch() {
  window.frames = [];
  window.work = [];
  const ask = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (draw) => ask((at) => {
    const begun = performance.now();
    draw(at);
    window.work.push(performance.now() - begun);
  });
  const tick = (at) => { window.frames.push(at); ask(tick); };
  ask(tick);
  const Stream = window.EventSource;
  window.EventSource = class extends Stream {
    addEventListener(name, hear) {
      super.addEventListener(name, name === 'all' ? (event) => { window.survey = JSON.parse(event.data); hear(event); } : hear);
      if (name === 'some') window.tell = (data) => hear({ data });
    }
  };
}

/** Sixty updates a second for a while, each of many devices, while the board scrolls up and down. */
async function storm(seconds) {
  const board = document.getElementById('board');
  const tiles = window.survey.gpus;
  window.frames.length = window.work.length = 0;
  const begun = performance.now();
  for (let update = 0; performance.now() - begun < seconds * 1000; update++) {
    const some = [];
    for (let at = update % 7; at < tiles.length; at += Math.ceil(tiles.length / 200)) {
      const tile = structuredClone(tiles[at]);
      for (const piece of tile[7]) piece[3] = (update * 37 + at) % 1000;
      some.push([at, tile]);
    }
    window.tell(JSON.stringify(some));
    board.scrollTop = (board.scrollHeight - board.clientHeight) * (0.5 - 0.5 * Math.cos(update / 40));
    await new Promise((done) => setTimeout(done, Math.max(0, begun + (update + 1) * (1000 / 60) - performance.now())));
  }
  const gaps = window.frames.slice(1).map((at, index) => at - window.frames[index]).sort((one, other) => one - other);
  const work = [...window.work].sort((one, other) => one - other);
  const of = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  return { frames: gaps.length / seconds, longest: of(gaps, 1), over50: gaps.filter((gap) => gap > 50).length, median: of(work, 0.5), most: of(work, 0.99) };
}

const results = [];
for (const line of process.env.SERVERS.trim().split('\n')) {
  const [gpus, server, key] = line.split(' ');
  const context = await browser.newContext({ viewport: { width: 1360, height: 850 } });
  context.setDefaultTimeout(120_000);
  await context.addInitScript(watch);
  const page = await context.newPage();
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(String(error)));
  await page.goto(`${server}/console`);
  await page.getByLabel('API key').fill(key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForURL(`${server}/console`);
  const begun = Date.now();
  await page.goto(`${server}/console/fleet`);
  await page.locator(`[data-fleet][data-drawn="${gpus}"]`).waitFor();
  const drawn = Date.now() - begun;
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0);
  // As large as they get, so that of every fleet the same number of tiles is in view.
  for (let press = 0; press < 3; press++) await page.getByRole('button', { name: 'Larger tiles' }).click();
  const near = await page.evaluate(storm, 3);
  for (let press = 0; press < 9; press++) await page.getByRole('button', { name: 'Smaller tiles' }).click();
  for (let press = 0; press < 2; press++) await page.getByRole('button', { name: 'Larger tiles' }).click();
  const far = await page.evaluate(storm, 3);
  if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/fleet-${gpus}.png` });
  const said = (what, { frames, longest, over50, median, most }) => `${what}: ${frames.toFixed(0)} frames a second, the longest ${longest.toFixed(0)} ms, ${over50} over 50 ms; drawing takes ${median.toFixed(1)} ms, 99 % within ${most.toFixed(1)} ms`;
  console.log(`${gpus} GPUs: first paint ${paint.toFixed(0)} ms, drawn after ${drawn} ms\n  ${said('near', near)}\n  ${said('far', far)}`);
  assert.deepEqual(wrong, []);
  assert.ok(near.frames > 0 && far.frames > 0, 'it draws');
  results.push(near);
  await context.close();
}
await browser.close();
const [small, large] = [results[0], results.at(-1)];
assert.ok(large.median < 4 * Math.max(small.median, 0.5), `a frame of the large fleet takes ${large.median} ms, of the small one ${small.median} ms`);
console.log('all done');
