// Drives the console in Debian's Chromium as people would: step after step, each with browsers of its own. What is not as it
// should be is told with its step at the end. SHOTS, a directory, has it take pictures on the way; ONLY, a word, walks the
// steps whose names hold it.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { chromium } from 'playwright-core';

const server = process.env.TENURE_SERVER;
const shots = process.env.SHOTS;
const axe = readFileSync(new URL('node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');
const HOSTILE = ['<img src=x onerror="document.title=1">', '\u202egnp.exe', '"><script>document.title=2</script>', "a'b&amp;{{7*7}}"];
// Long enough for a machine that does much else.
const PATIENCE_MS = 120_000;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'], timeout: PATIENCE_MS });

async function api(token, method, path, body) {
  const answer = await fetch(server + path, { method, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' }, body: body && JSON.stringify(body) });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
}

let open = [];

/** A browser of its own that minds what goes wrong in it. */
async function visit(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 850 }, locale: 'en-GB', timezoneId: 'Europe/Berlin', ...options });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const wrong = [];
  page.on('console', (message) => { if (message.type() === 'error' || message.text().includes('Content Security Policy')) wrong.push(message.text()); });
  page.on('pageerror', (error) => wrong.push(String(error)));
  page.on('request', (request) => { if (!request.url().startsWith(server) && !request.url().startsWith('data:')) wrong.push(`a request to ${request.url()}`); });
  page.on('dialog', (dialog) => dialog.accept());
  open.push({ context, page });
  return { context, page, wrong };
}

const failed = [];

/** One thing people do. */
async function step(name, walk) {
  if (process.env.ONLY && !name.includes(process.env.ONLY)) return;
  const begun = Date.now();
  try {
    await walk();
    console.log(`${name} (${Date.now() - begun} ms)`);
  } catch (error) {
    failed.push(`${name}: ${error.stack ?? error}`);
    console.log(`FAILED ${name}`);
    for (const [at, { page }] of open.entries()) if (shots) await page.screenshot({ path: `${shots}/failed-${failed.length}-${at}.png` }).catch(() => {});
  }
  for (const { context } of open) await context.close();
  open = [];
}

async function signIn(page, token) {
  await page.goto(`${server}/console`);
  await page.getByLabel('API key').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForURL(`${server}/console`);
}

/** Goes to a page and waits until its scripts have done what they do at first. */
async function go(page, path) {
  const answer = await page.goto(server + path);
  await settled(page);
  return answer;
}

async function settled(page) {
  await page.locator('html[data-ready]').waitFor({ state: 'attached' });
  if (await page.locator('[data-fleet]').count()) await page.locator('[data-fleet][data-drawn]').waitFor();
}

/** What is wrong with a page for people who cannot see, or use no mouse. */
async function accessible(page, what) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const said = found.violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => `${node.html} ${node.failureSummary}`).join(' | ')}`);
  assert.deepEqual(said, [], `${what} at ${page.url()}`);
}

/** Nothing reaches beyond the page's edge, no text is cut without a sign of it, and no two things that can be clicked overlap. */
async function fits(page, what) {
  const found = await page.evaluate(() => {
    const over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    const wrong = over > 1 ? [`${over} pixels too wide`] : [];
    const seen = (/** @type {Element} */ one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest('.hidden, .skip');
    const cut = (/** @type {Element} */ one) => getComputedStyle(one).overflowX === 'visible' && one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0;
    for (const one of document.querySelectorAll('h1, h2, h3, p, .tile, .card, .pill, .notice, button, .button, td, th, dd')) {
      if (seen(one) && cut(one)) wrong.push(`${one.tagName} runs over: ${one.textContent.trim().slice(0, 60)}`);
    }
    const clicked = [...document.querySelectorAll('a[href], button, input:not([type="hidden"]), select, textarea, summary')].filter(seen);
    // What is scrolled out of its box is not there to be hit.
    const shown = (/** @type {Element} */ one) => {
      const { left, right, top, bottom } = one.getBoundingClientRect();
      const box = { left, right, top, bottom };
      for (let around = one.parentElement; around && around !== document.body; around = around.parentElement) {
        if (getComputedStyle(around).overflowX === 'visible') continue;
        const its = around.getBoundingClientRect();
        box.left = Math.max(box.left, its.left);
        box.right = Math.min(box.right, its.right);
        box.top = Math.max(box.top, its.top);
        box.bottom = Math.min(box.bottom, its.bottom);
      }
      return box;
    };
    const boxes = clicked.map((one) => ({ one, box: shown(one) })).filter(({ box }) => box.right - box.left > 1 && box.bottom - box.top > 1);
    for (const [at, { one, box }] of boxes.entries()) {
      for (const { one: other, box: its } of boxes.slice(at + 1, at + 40)) {
        if (one.contains(other) || other.contains(one) || one.closest('label') && one.closest('label') === other.closest('label')) continue;
        const wide = Math.min(box.right, its.right) - Math.max(box.left, its.left);
        const tall = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
        if (wide > 2 && tall > 2) wrong.push(`${one.outerHTML.slice(0, 80)} lies over ${other.outerHTML.slice(0, 80)}`);
      }
    }
    return wrong.slice(0, 5);
  });
  assert.deepEqual(found, [], `${what} at ${page.url()}`);
}

async function shot(page, name) {
  if (shots) await page.screenshot({ path: `${shots}/${name}.png` });
}

/** As it is by Playwright's own mouse: down, along, up. */
async function drag(page, locator, [fromX, toX], y) {
  // What is kept live may be put in anew just then.
  let box = null;
  for (let round = 0; !box && round < 100; round++) {
    await locator.scrollIntoViewIfNeeded();
    box = await locator.boundingBox();
    if (!box) await page.waitForTimeout(100);
  }
  await page.mouse.move(box.x + box.width * fromX, box.y + y);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * toX, box.y + y, { steps: 5 });
  await page.mouse.up();
}

const people = { owner: process.env.OWNER, alma: process.env.ALMA, ada: process.env.ADA, bo: process.env.BO, gus: process.env.GUS, cleo: process.env.CLEO };

/** Somebody with a role at a place, and their key. */
async function somebody(parent, name, role) {
  const made = await api(people.owner, 'POST', '/v1/users', { parent, name, role });
  return (await api(people.owner, 'POST', `/v1/users/${made.id}/keys`, { label: 'test' })).token;
}

// An auditor, who reads everything and changes nothing; and who runs a subscriber.
people.auditor = await somebody('platform', 'audrey', 'auditor');
const research = await api(people.owner, 'GET', '/v1/scopes?path=acme/research');
people.subscriber = await somebody(research.id, 'rita', 'owner');

// Jobs whose words are out for trouble, one that runs on a GPU, one that waits.
const demand = { cpu_milli: 100, memory_mib: 64 };
const hostile = [];
for (const [at, text] of HOSTILE.entries()) {
  const spec = { name: `hostile-${at}`, command: ['sh', '-c', 'printf "\\033[31mred\\033[0m <b>bold</b>\\n"; echo "$1"; sleep 1', 'sh', text], env: { TEXT: text }, demand };
  hostile.push(await api(people.ada, 'POST', '/v1/jobs', { spec }));
}
const running = await api(people.ada, 'POST', '/v1/jobs', { spec: { name: 'simulate', command: ['sh', '-c', 'while true; do echo tick; sleep 1; done'], demand: { ...demand, gpus: 1, compute_permille: 300, vram_mib: 256 }, run_time_s: 3600 } });
await api(people.cleo, 'POST', '/v1/jobs', { spec: { name: 'neighbour', command: ['sleep', '3000'], demand: { ...demand, gpus: 1, compute_permille: 200, vram_mib: 128 } } });
const studio = await api(people.owner, 'GET', '/v1/scopes?path=acme/studio');
await api(people.owner, 'PUT', `/v1/scopes/${studio.id}/quota`, { limits: { jobs: 1 } });
await api(people.bo, 'POST', '/v1/jobs', { spec: { name: 'occupant', command: ['sleep', '3000'], demand, run_time_s: 3600 } });
const waiting = await api(people.bo, 'POST', '/v1/jobs', { spec: { name: 'patient', command: ['sleep', '60'], demand } });
for (const name of ['second-in-line', 'third-in-line']) await api(people.bo, 'POST', '/v1/jobs', { spec: { name, command: ['sleep', '60'], demand, run_time_s: 300 } });
await api(people.ada, 'POST', '/v1/jobs', { spec: { name: 'wants-it-whole', command: ['sleep', '60'], demand: { ...demand, gpus: 1 }, run_time_s: 600 } });
const acme = await api(people.owner, 'GET', '/v1/scopes?path=acme');
const globex = await api(people.owner, 'GET', '/v1/scopes?path=globex');
const [{ gpu }] = (await api(people.owner, 'GET', '/v1/gpus')).items;
await api(people.owner, 'PUT', `/v1/scopes/${globex.id}/quota`, { limits: { jobs: 4, cpu_milli: 2000, [`gpu_milli@class:${gpu.class}`]: 4000 } });
await api(people.owner, 'PUT', `/v1/scopes/${acme.id}/budgets`, { budgets: [{ period: 'month', money_micros: 50_000_000 }] });

await step('signing in and out', async () => {
  const { context, page, wrong } = await visit();
  await page.goto(`${server}/`);
  await page.waitForURL(/sign-in/);
  await accessible(page, 'signing in');
  await fits(page, 'signing in');
  await shot(page, 'sign-in');
  await page.getByLabel('API key').fill('tnr_nonsense');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('alert').waitFor();
  await accessible(page, 'a wrong key');
  assert.ok(wrong.splice(0).every((text) => text.includes('401')), 'only the refusal itself');
  await page.goto(`${server}/console/jobs?show=done`);
  await page.getByLabel('API key').fill(people.ada);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForURL(/jobs\?show=done/);
  const [session] = (await context.cookies()).filter((cookie) => cookie.name === 'tenure_session');
  assert.ok(session.httpOnly && session.sameSite === 'Strict' && session.expires > 0, 'a session no script can read');
  assert.notEqual(session.value, people.ada, 'the key itself is not kept');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.waitForURL(/sign-in/);
  const after = await fetch(`${server}/v1/whoami`, { headers: { authorization: `Bearer ${session.value}` } });
  assert.equal(after.status, 401, 'a session that was ended is over');
  assert.deepEqual(wrong, []);
});

await step('forged forms change nothing', async () => {
  const { context, page } = await visit();
  await signIn(page, people.ada);
  const [session] = (await context.cookies()).filter((cookie) => cookie.name === 'tenure_session');
  for (const headers of [{ origin: 'http://evil.example' }, { 'sec-fetch-site': 'cross-site' }, {}]) {
    const answer = await fetch(`${server}/console/jobs/${running.id}/stop`, { method: 'POST', redirect: 'manual', body: 'csrf=', headers: { cookie: `tenure_session=${session.value}`, 'content-type': 'application/x-www-form-urlencoded', ...headers } });
    assert.equal(answer.status, 403);
  }
  const door = await fetch(`${server}/console/api/v1/jobs/${running.id}/stop`, { method: 'POST', headers: { cookie: `tenure_session=${session.value}` } });
  assert.equal(door.status, 403);
  const cookie = await fetch(`${server}/v1/whoami`, { headers: { cookie: `tenure_session=${session.value}` } });
  assert.equal(cookie.status, 401, 'the API itself knows no cookies');
});

for (const [who, token] of Object.entries(people)) await step(`every page for ${who}`, async () => {
  const { page, wrong } = await visit();
  await signIn(page, token);
  const links = await page.getByRole('navigation', { name: 'Pages' }).getByRole('link').all();
  const pages = new Set(await Promise.all(links.map((link) => link.getAttribute('href'))));
  for (const more of ['/console/jobs?show=waiting', '/console/jobs?show=done', '/console/jobs/new', '/console/jobs/new?as=yaml', '/console/money?by=class', '/console/money?days=90']) pages.add(more);
  if (!['cleo', 'gus', 'bo'].includes(who)) for (const job of [running, ...hostile]) pages.add(`/console/jobs/${job.id}`);
  if (!['cleo', 'gus', 'ada', 'subscriber'].includes(who)) pages.add(`/console/jobs/${waiting.id}`);
  if (['owner', 'auditor', 'alma'].includes(who)) pages.add(`/console/money/invoices/draft?scope=${acme.id}`);
  if (['owner', 'auditor'].includes(who)) pages.add(`/console/fleet/${gpu.id}`).add('/console/audit/3');
  await go(page, '/console/admin');
  for (const link of (await page.locator('.tree a').all()).slice(0, 4)) pages.add(await link.getAttribute('href'));
  for (const path of pages) {
    const answer = await go(page, path);
    assert.equal(answer.status(), 200, `${who} at ${path}`);
    await accessible(page, who);
    await fits(page, who);
    const title = await page.title();
    assert.ok(!/^[12]$/.test(title), `a name ran as a script at ${path}`);
    assert.deepEqual(wrong, [], `${who} at ${path}`);
  }
  const missing = await page.goto(`${server}/console/jobs/job_nothing`);
  assert.equal(missing.status(), 404);
  await accessible(page, 'what is not there');
  if (who === 'owner') await shot(page, 'nothing-here');
  assert.ok(wrong.splice(0).every((text) => text.includes('404')));
  console.log(`  ${pages.size} pages`);
});

await step('walls between tenants', async () => {
  const { page } = await visit();
  await signIn(page, people.cleo);
  for (const path of [`/console/jobs/${running.id}`, '/console/health', `/console/api/v1/jobs/${running.id}`, `/console/money?scope=${acme.id}`, `/console/money/invoices/draft?scope=${acme.id}`, `/console/admin/${acme.id}`]) {
    const answer = await page.goto(server + path);
    assert.ok([403, 404].includes(answer.status()), `${path}: ${answer.status()}`);
    assert.ok(!(await page.content()).includes('simulate'));
  }
  await go(page, '/console/fleet');
  assert.ok(!(await page.content()).includes('acme'), 'a neighbour has no name');
});

await step('from the form to the bill by mouse', async () => {
  const { page, wrong } = await visit();
  await signIn(page, people.ada);
  await page.getByRole('link', { name: 'New job' }).click();
  await page.locator('.kind', { hasText: 'Fine-tune' }).click();
  await page.getByLabel('Model').last().fill('13B');
  await page.getByText('Memory of each GPU').waitFor();
  await shot(page, 'submit');
  await page.locator('.kind', { hasText: 'Batch' }).click();
  await page.getByLabel('Name', { exact: true }).fill('by-mouse');
  await page.getByLabel('Command').fill('for i in 1 2 3 4; do echo line $i; sleep 1; done');
  await page.getByLabel('CPU cores').fill('0.1');
  await page.getByText('an hour').first().waitFor();
  await page.getByRole('button', { name: 'Submit' }).click();
  await page.waitForURL(/jobs\/job_/);
  await page.getByText('line 4').waitFor();
  await page.locator('#acts .is-succeeded').waitFor();
  await page.getByText('It ended by itself and succeeded.').waitFor();
  const pages = page.getByRole('navigation', { name: 'Pages' });
  await pages.getByRole('link', { name: 'Money' }).click();
  await page.locator('#lines').getByRole('link', { name: 'by-mouse' }).waitFor();
  await page.getByRole('navigation', { name: 'Put together by' }).getByRole('link', { name: 'job name' }).click();
  await page.locator('#groups').getByText('by-mouse').first().waitFor({ state: 'attached' });
  assert.deepEqual(wrong, []);
});

await step('a bill down to its intervals', async () => {
  const { page, wrong } = await visit();
  await signIn(page, people.alma);
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Money' }).click();
  await page.getByRole('link', { name: 'The month so far' }).click();
  await page.getByRole('link', { name: 'batch without a GPU' }).click();
  await page.locator('#rows').getByRole('link', { name: /hostile|by-mouse|occupant/ }).first().waitFor();
  await accessible(page, 'intervals');
  await fits(page, 'intervals');
  await shot(page, 'invoice');
  await page.locator('#rows').getByRole('link').first().click();
  await page.waitForURL(/jobs\/job_/);
  assert.deepEqual(wrong, []);
});

await step('a booking by dragging', async () => {
  const { page, wrong } = await visit();
  await signIn(page, people.alma);
  await page.getByRole('link', { name: 'Calendar' }).click();
  await page.getByRole('link', { name: 'Week after' }).click();
  await page.waitForURL(/week=/);
  await settled(page);
  await drag(page, page.locator('[data-week] canvas'), [0.3, 0.34], 40);
  assert.match(await page.getByLabel('From').inputValue(), /^\d{4}-\d\d-\d\dT\d\d:[03]0$/);
  assert.equal(await page.getByLabel('Zone').inputValue(), 'Europe/Berlin');
  await page.getByLabel('Name', { exact: true }).fill('by-dragging');
  await page.getByRole('button', { name: 'See the price' }).click();
  await page.getByRole('button', { name: /^Book for/ }).waitFor();
  await accessible(page, 'a booking to confirm');
  await shot(page, 'book');
  await page.getByRole('button', { name: /^Book for/ }).click();
  await page.waitForURL(/calendar\/[a-z]+_/);
  await accessible(page, 'a booking');
  await fits(page, 'a booking');
  await page.getByRole('link', { name: 'Calendar' }).first().click();
  await page.getByRole('link', { name: 'Week after' }).click();
  await page.waitForURL(/week=/);
  await settled(page);
  await shot(page, 'calendar');
  await page.getByText('Show as a table').click();
  await page.getByRole('link', { name: 'by-dragging' }).waitFor();
  await accessible(page, 'a week');
  await page.getByRole('link', { name: 'by-dragging' }).click();
  await page.getByRole('button', { name: 'Cancel all of it' }).click();
  await page.waitForURL(`${server}/console/calendar`);
  assert.deepEqual(wrong, []);
});

await step('a booking by clocks that are not the reader\'s', async () => {
  const { page, wrong } = await visit();
  await signIn(page, people.alma);
  await go(page, '/console/calendar');
  const day = new Date(Date.now() + 14 * 86_400_000).toISOString().slice(0, 10);
  await page.getByLabel('Name', { exact: true }).fill('far-away');
  await page.getByLabel('From').fill(`${day}T09:00`);
  await page.getByLabel('Until', { exact: true }).fill(`${day}T10:30`);
  await page.getByLabel('Zone').fill('Asia/Tokyo');
  await page.getByLabel('Again').selectOption('daily');
  await page.getByLabel('Until the day').fill(day);
  await page.getByRole('button', { name: 'See the price' }).click();
  await page.getByRole('button', { name: /^Book for/ }).waitFor();
  await settled(page);
  const row = await page.locator('tbody tr').first().textContent();
  assert.match(row, /09:00.*10:30/, 'as promised there, not as a clock here would show it');
  await page.getByRole('button', { name: /^Book for/ }).click();
  await page.waitForURL(/calendar\/[a-z]+_/);
  await settled(page);
  assert.match(await page.locator('#windows tbody tr').first().textContent(), /09:00.*10:30/);
  await page.getByText('Wall times of Asia/Tokyo').waitFor();
  await accessible(page, 'a booking elsewhere');
  await fits(page, 'a booking elsewhere');
  await page.getByRole('button', { name: /^Cancel the window of/ }).first().click();
  await page.waitForURL(`${server}/console/calendar`);
  assert.deepEqual(wrong, []);
});

await step('what a job did is told as it was', async () => {
  const { page, wrong } = await visit();
  await signIn(page, people.ada);
  const job = await api(people.ada, 'POST', '/v1/jobs', { spec: { name: 'stop-and-go', command: ['sh', '-c', 'sleep 600'], demand: { ...demand, gpus: 1, compute_permille: 100, vram_mib: 64 }, run_time_s: 600 } });
  await go(page, `/console/jobs/${job.id}`);
  await page.locator('#acts .is-running').waitFor();
  await page.getByText(/^It is running since .* at .* an hour, until .* at most\.$/).waitFor();
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.locator('#acts .is-paused').waitFor();
  await page.waitForTimeout(1500);
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.locator('#acts .is-running').waitFor();
  await page.locator('#way tbody th', { hasText: 'Paused' }).waitFor({ state: 'attached' });
  const ran = page.locator('#way tbody th', { hasText: /^Ran$/ });
  await ran.nth(1).waitFor({ state: 'attached' });
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('#acts .is-cancelled').waitFor();
  assert.deepEqual(wrong, []);
});

await step('offered, bought and recalled', async () => {
  const seller = await visit();
  await signIn(seller.page, people.gus);
  await go(seller.page, '/console/exchange');
  await seller.page.getByText('GPUs idle now').waitFor();
  await seller.page.locator('#sell-gpus').fill('1');
  await seller.page.locator('#sell-price').fill('0.40');
  await seller.page.getByRole('button', { name: 'Offer', exact: true }).click();
  await seller.page.locator('#offers').getByRole('button', { name: 'Withdraw' }).waitFor();
  const buyer = await visit();
  await signIn(buyer.page, people.alma);
  await go(buyer.page, '/console/exchange');
  await buyer.page.locator('#offers').getByRole('button', { name: /^Buy 1 GPUs for 1 hours/ }).waitFor();
  await buyer.page.locator('#buy-gpus').fill('0.5');
  await buyer.page.locator('#buy-hours').fill('2');
  await buyer.page.getByRole('button', { name: 'See the price' }).click();
  await buyer.page.getByRole('button', { name: /^Buy for 0.40/ }).waitFor();
  await accessible(buyer.page, 'a purchase to confirm');
  await shot(buyer.page, 'buy');
  await buyer.page.getByRole('button', { name: /^Buy for/ }).click();
  await buyer.page.locator('#leases').getByText('bought').waitFor();
  await buyer.page.getByText('Or wait for a price of your own').click();
  await buyer.page.locator('#bid-gpus').fill('0.25');
  await buyer.page.locator('#bid-hours').fill('1');
  await buyer.page.locator('#bid-price').fill('0.10');
  await buyer.page.getByRole('button', { name: 'Bid', exact: true }).click();
  await buyer.page.locator('#bids').getByRole('button', { name: 'Cancel' }).waitFor();
  await settled(buyer.page);
  await shot(buyer.page, 'exchange');
  await accessible(buyer.page, 'a lease');
  await fits(buyer.page, 'a lease');
  await go(seller.page, '/console/exchange');
  await seller.page.getByRole('button', { name: 'Recall' }).click();
  await seller.page.locator('#leases').getByText(/recalled|vacating|Nothing is leased/).first().waitFor();
  await buyer.page.locator('#leases').getByText(/recalled|vacating|Nothing is leased/).first().waitFor();
  assert.deepEqual([...seller.wrong, ...buyer.wrong], []);
});

await step('a place in the tree is made, limited, tested and given a key', async () => {
  const { page, wrong } = await visit();
  await signIn(page, people.owner);
  await page.getByRole('link', { name: 'Admin' }).click();
  await page.locator('.tree').getByRole('link', { name: 'globex', exact: true }).click();
  await page.getByText('Add somebody').click();
  await page.getByLabel('Name').fill('by-form');
  await page.getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByRole('link', { name: 'by-form' }).click();
  await page.getByText('Set a limit').click();
  await page.locator('select[name="meter"]').selectOption('memory_mib');
  await page.getByLabel('At most', { exact: true }).fill('4');
  await page.getByRole('button', { name: 'Set', exact: true }).click();
  await page.getByRole('row', { name: /memory/ }).getByText('4 GiB').waitFor();
  await page.getByText('Add somebody').click();
  await page.getByLabel('Name').fill('bad name');
  await page.getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByRole('alert').waitFor();
  await page.getByText('Add somebody').click();
  await page.locator('select[name="what"]').selectOption('person');
  await page.getByLabel('Name').fill('fay');
  await page.locator('select[name="role"]').selectOption('member');
  await page.getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByRole('link', { name: 'fay' }).click();
  await page.getByRole('button', { name: 'Try it' }).click();
  await page.getByRole('status').filter({ hasText: 'It would be' }).waitFor();
  await page.getByLabel('Label').fill('laptop');
  await page.getByRole('button', { name: 'New key' }).click();
  await page.getByText('The new key, shown this once').waitFor();
  await accessible(page, 'a new key');
  await fits(page, 'a new key');
  assert.ok(wrong.splice(0).every((text) => text.includes('422')), 'only the refusal itself');
});

await step('the journal is searched and verified', async () => {
  const { page, wrong } = await visit();
  await signIn(page, people.auditor);
  await page.getByRole('link', { name: 'Audit' }).click();
  await page.getByLabel('Search events').fill('scope created');
  await page.getByRole('button', { name: 'Search' }).click();
  await page.getByRole('rowheader', { name: 'Scope created' }).first().waitFor();
  assert.equal(await page.getByRole('rowheader').filter({ hasNotText: 'Scope created' }).count(), 0);
  await page.getByRole('button', { name: 'Verify the events below' }).click();
  await page.getByRole('status').filter({ hasText: 'found sound' }).waitFor();
  await page.locator('td.num a').first().click();
  await page.getByText('It is in the journal').waitFor();
  await shot(page, 'proof');
  assert.deepEqual(wrong, []);
});

await step('stopping asks first and the page follows', async () => {
  const { page } = await visit();
  await signIn(page, people.bo);
  await go(page, `/console/jobs/${waiting.id}`);
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('#acts .is-cancelled').waitFor();
});

await step('without scripts', async () => {
  const { page } = await visit({ javaScriptEnabled: false });
  await signIn(page, people.ada);
  for (const path of ['/console/fleet', '/console/money', '/console/audit', '/console/calendar', '/console/admin', `/console/jobs/${running.id}`]) {
    await page.goto(server + path);
    assert.ok(await page.locator('table').first().isVisible(), path);
  }
  assert.ok((await page.locator('pre.log').first().textContent()).includes('tick'));
  await page.goto(`${server}/console/jobs/new?as=yaml`);
  await page.getByRole('button', { name: 'Price it' }).click();
  await page.getByText('an hour').first().waitFor();
  await page.getByRole('button', { name: 'Submit' }).click();
  await page.waitForURL(/jobs\/job_/);
});

// What jobs wrote is found by its text, and whatever stands in a line is text.
await step('logs', async () => {
  const { page, wrong } = await visit();
  await signIn(page, people.ada);
  const row = page.locator('table.lines tbody tr').first();
  for (let tries = 0; tries < 60 && !(await row.isVisible()); tries += 1) {
    await page.goto(`${server}/console/logs`);
    await page.getByLabel('Text in the line').fill('<B>bold');
    await page.getByLabel('Since when').selectOption('Last hour');
    await page.getByRole('button', { name: 'Search' }).click();
    await page.waitForURL(/logs\?q=/);
    await page.waitForTimeout(1000);
  }
  assert.equal(await row.locator('.line').textContent(), 'red <b>bold</b>');
  assert.equal(await page.locator('.line b').count(), 0);
  await fits(page, 'logs');
  await accessible(page, 'logs');
  await shot(page, 'logs');
  await row.getByRole('link').click();
  await page.waitForURL(/jobs\/job_/);
  await page.goto(`${server}/console/logs?label=nonsense`);
  await page.getByRole('alert').waitFor();
  await accessible(page, 'a search that cannot be meant');
  assert.deepEqual(wrong, []);
  const still = await visit({ javaScriptEnabled: false, viewport: { width: 375, height: 740 } });
  await signIn(still.page, people.cleo);
  await still.page.goto(`${server}/console/logs?q=bold`);
  await still.page.getByText('No line fits.').waitFor();
});

// From a phone to a wall, in both sets of colours.
const everywhere = ['/console', '/console/fleet', `/console/fleet/${gpu.id}`, '/console/jobs', '/console/jobs?show=waiting', `/console/jobs/${running.id}`, '/console/jobs/new', '/console/calendar', '/console/exchange', '/console/money', '/console/health', '/console/logs', '/console/audit', '/console/audit/3', '/console/admin', `/console/admin/${acme.id}`];
const named = (path) => path.split(/[/?=]/).slice(2).join('-').replace(/(job|gpu|ten)_\w+/, 'one') || 'overview';
for (const [name, options] of Object.entries({
  desk: {},
  dark: { colorScheme: 'dark' },
  phone: { viewport: { width: 375, height: 740 }, hasTouch: true },
  'phone-dark': { viewport: { width: 375, height: 740 }, hasTouch: true, colorScheme: 'dark' },
  tablet: { viewport: { width: 820, height: 1100 } },
  wall: { viewport: { width: 3840, height: 2160 } },
})) await step(`every page on ${name}`, async () => {
  const { page, wrong } = await visit(options);
  await signIn(page, people.owner);
  for (const path of everywhere) {
    await go(page, path);
    await fits(page, name);
    await accessible(page, name);
    await shot(page, `${name}-${named(path)}`);
  }
  assert.deepEqual(wrong, []);
});

await step('by keyboard', async () => {
  const { page } = await visit();
  await signIn(page, people.owner);
  await settled(page);
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement?.className), 'skip');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement?.id ?? location.hash), 'main');
  await go(page, '/console/fleet');
  await page.locator('#canvas').focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');
  await page.waitForURL(/fleet\/gpu_/);
  await page.getByRole('button', { name: 'Dark' }).click();
  await page.locator('html[data-theme="dark"]').waitFor({ state: 'attached' });
});

await browser.close();
assert.deepEqual(failed, []);
console.log('all done');
