// Drives the console in Debian's Chromium as people would. Prints what it did; the first thing that is not as it should
// be ends it. SHOTS, a directory, has it take pictures on the way.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { chromium } from 'playwright-core';

const server = process.env.TENURE_SERVER;
const shots = process.env.SHOTS;
const axe = readFileSync(new URL('node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');
const HOSTILE = ['<img src=x onerror="document.title=1">', '\u202egnp.exe', '"><script>document.title=2</script>', "a'b&amp;{{7*7}}"];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });

async function api(token, method, path, body) {
  const answer = await fetch(server + path, { method, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' }, body: body && JSON.stringify(body) });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
}

/** A browser of its own that minds what goes wrong in it. */
async function visit(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 850 }, locale: 'en-GB', timezoneId: 'Europe/Berlin', ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on('console', (message) => { if (message.type() === 'error' || message.text().includes('Content Security Policy')) wrong.push(message.text()); });
  page.on('pageerror', (error) => wrong.push(String(error)));
  page.on('request', (request) => { if (!request.url().startsWith(server) && !request.url().startsWith('data:')) wrong.push(`a request to ${request.url()}`); });
  page.on('dialog', (dialog) => dialog.accept());
  return { context, page, wrong };
}

async function signIn(page, token) {
  await page.goto(`${server}/console`);
  await page.getByLabel('API key').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForURL(`${server}/console`);
}

/** What is wrong with a page for people who cannot see, or use no mouse. */
async function accessible(page, what) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const said = found.violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => `${node.html} ${node.failureSummary}`).join(' | ')}`);
  assert.deepEqual(said, [], `${what} at ${page.url()}`);
}

/** Nothing reaches beyond the page's edge. */
async function fits(page, what) {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(over <= 1, `${what} is ${over} pixels too wide at ${page.url()}`);
}

async function shot(page, name) {
  if (shots) await page.screenshot({ path: `${shots}/${name}.png` });
}

/** A picture of each page. */
async function pictures(page, mark) {
  if (!shots) return;
  for (const [path, name] of [['', 'overview'], ['/fleet', 'fleet'], ['/jobs', 'jobs'], ['/jobs?show=waiting', 'waiting'], [`/jobs/${running.id}`, 'job'], ['/money', 'money'], ['/health', 'health'], ['/audit', 'audit'], ['/admin', 'admin']]) {
    await page.goto(`${server}/console${path}`);
    await page.waitForTimeout(700);
    await shot(page, name + mark);
  }
}

const people = { owner: process.env.OWNER, alma: process.env.ALMA, ada: process.env.ADA, bo: process.env.BO, gus: process.env.GUS, cleo: process.env.CLEO };

// An auditor, who reads everything and changes nothing.
const auditor = await api(people.owner, 'POST', '/v1/users', { parent: 'platform', name: 'audrey', role: 'auditor' });
people.auditor = (await api(people.owner, 'POST', `/v1/users/${auditor.id}/keys`, { label: 'test' })).token;

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
await api(people.bo, 'POST', '/v1/jobs', { spec: { name: 'occupant', command: ['sleep', '3000'], demand } });
const waiting = await api(people.bo, 'POST', '/v1/jobs', { spec: { name: 'patient', command: ['sleep', '60'], demand } });

// Signing in: a wrong key is told so, a page asked for before is come back to, and signing out ends it.
{
  const { context, page, wrong } = await visit();
  await page.goto(`${server}/`);
  await page.waitForURL(/sign-in/);
  await accessible(page, 'signing in');
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
  await context.close();
  console.log('signing in and out');
}

// A form from elsewhere, and one without the session's token, change nothing.
{
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
  await context.close();
  console.log('forged forms');
}

// Every page for every role.
for (const [who, token] of Object.entries(people)) {
  const { context, page, wrong } = await visit();
  await signIn(page, token);
  const links = await page.getByRole('navigation', { name: 'Pages' }).getByRole('link').all();
  const pages = new Set(await Promise.all(links.map((link) => link.getAttribute('href'))));
  for (const more of ['/console/jobs?show=waiting', '/console/jobs?show=done', '/console/jobs/new', '/console/jobs/new?as=yaml']) pages.add(more);
  if (!['cleo', 'gus', 'bo'].includes(who)) for (const job of [running, ...hostile]) pages.add(`/console/jobs/${job.id}`);
  if (!['cleo', 'gus', 'ada'].includes(who)) pages.add(`/console/jobs/${waiting.id}`);
  if (pages.has('/console/admin')) {
    await page.goto(`${server}/console/admin`);
    const below = await page.locator('.tree a').all();
    for (const link of below.slice(0, 3)) pages.add(await link.getAttribute('href'));
  }
  for (const path of pages) {
    const answer = await page.goto(server + path);
    assert.equal(answer.status(), 200, `${who} at ${path}`);
    await page.waitForTimeout(250);
    await accessible(page, who);
    await fits(page, who);
    const title = await page.title();
    assert.ok(!/^[12]$/.test(title), `a name ran as a script at ${path}`);
    assert.deepEqual(wrong, [], `${who} at ${path}`);
  }
  const missing = await page.goto(`${server}/console/jobs/job_nothing`);
  assert.equal(missing.status(), 404);
  await accessible(page, 'what is not there');
  assert.ok(wrong.splice(0).every((text) => text.includes('404')));
  console.log(`${who}: ${pages.size} pages`);
  await context.close();
}

// What others may not see: neither in pages nor through the scripts' door.
{
  const { context, page } = await visit();
  await signIn(page, people.cleo);
  for (const path of [`/console/jobs/${running.id}`, '/console/health', `/console/api/v1/jobs/${running.id}`]) {
    const answer = await page.goto(server + path);
    assert.ok([403, 404].includes(answer.status()), `${path}: ${answer.status()}`);
    assert.ok(!(await page.content()).includes('simulate'));
  }
  await page.goto(`${server}/console/fleet`);
  await page.locator('[data-fleet][data-drawn]').waitFor();
  assert.ok(!(await page.content()).includes('acme'), 'a neighbour has no name');
  await context.close();
  console.log('walls between tenants');
}

// A job from its form to its bill, by mouse alone but for what is typed into it.
{
  const { context, page, wrong } = await visit();
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
  await page.locator('#acts .is-running').waitFor({ timeout: 60_000 });
  await page.getByText('line 2').waitFor({ timeout: 30_000 });
  await page.locator('#acts .is-succeeded').waitFor({ timeout: 60_000 });
  await page.getByText('It ended by itself and succeeded.').waitFor();
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Money' }).click();
  await page.locator('#lines').getByRole('link', { name: 'by-mouse' }).waitFor();
  assert.deepEqual(wrong, []);
  await context.close();
  console.log('from the form to the bill');
}

// A booking by dragging over the week, to its price and back out of it.
{
  const { context, page, wrong } = await visit();
  await signIn(page, people.alma);
  await page.getByRole('link', { name: 'Calendar' }).click();
  await page.getByRole('link', { name: 'Week after' }).click();
  await page.waitForURL(/week=/);
  const box = await page.locator('[data-week] canvas').boundingBox();
  await page.mouse.move(box.x + box.width * 0.3, box.y + 40);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.34, box.y + 40, { steps: 5 });
  await page.mouse.up();
  assert.match(await page.getByLabel('From').inputValue(), /^\d{4}-\d\d-\d\dT\d\d:[03]0$/);
  await page.getByLabel('Name', { exact: true }).fill('by-dragging');
  await page.getByRole('button', { name: 'See the price' }).click();
  await page.getByRole('button', { name: /^Book for/ }).waitFor();
  await accessible(page, 'a booking to confirm');
  await page.getByRole('button', { name: /^Book for/ }).click();
  await page.waitForURL(/calendar\/[a-z]+_/);
  await accessible(page, 'a booking');
  await page.getByRole('link', { name: 'Calendar' }).first().click();
  await page.getByRole('link', { name: 'Week after' }).click();
  await page.waitForURL(/week=/);
  await page.getByText('Show as a table').click();
  await page.getByRole('link', { name: 'by-dragging' }).waitFor();
  await shot(page, 'calendar');
  await page.getByRole('link', { name: 'by-dragging' }).click();
  await page.getByRole('button', { name: 'Cancel it' }).click();
  await page.waitForURL(`${server}/console/calendar`);
  assert.deepEqual(wrong, []);
  await context.close();
  console.log('a booking by dragging');
}

// Capacity offered, bought at a price that was seen, and recalled.
{
  const globex = await api(people.owner, 'GET', '/v1/scopes?path=globex');
  const [{ gpu }] = (await api(people.owner, 'GET', '/v1/gpus')).items;
  await api(people.owner, 'PUT', `/v1/scopes/${globex.id}/quota`, { limits: { jobs: 4, cpu_milli: 2000, [`gpu_milli@class:${gpu.class}`]: 4000 } });
  const seller = await visit();
  await signIn(seller.page, people.gus);
  await seller.page.goto(`${server}/console/exchange`);
  await seller.page.locator('#sell-gpus').fill('1');
  await seller.page.locator('#sell-price').fill('0.40');
  await seller.page.getByRole('button', { name: 'Offer', exact: true }).click();
  await seller.page.locator('#offers').getByRole('button', { name: 'Withdraw' }).waitFor();
  const buyer = await visit();
  await signIn(buyer.page, people.alma);
  await buyer.page.goto(`${server}/console/exchange`);
  await buyer.page.getByLabel('GPUs').first().fill('0.5');
  await buyer.page.locator('#buy-hours').fill('2');
  await buyer.page.getByRole('button', { name: 'See the price' }).click();
  await buyer.page.getByRole('button', { name: /^Buy for 0.40/ }).waitFor();
  await accessible(buyer.page, 'a purchase to confirm');
  await buyer.page.getByRole('button', { name: /^Buy for/ }).click();
  await buyer.page.locator('#leases').getByText('bought').waitFor();
  await shot(buyer.page, 'exchange');
  await accessible(buyer.page, 'a lease');
  await seller.page.goto(`${server}/console/exchange`);
  await seller.page.getByRole('button', { name: 'Recall' }).click();
  await seller.page.locator('#leases').getByText(/recalled|vacating|Nothing is leased/).first().waitFor();
  assert.deepEqual([...seller.wrong, ...buyer.wrong], []);
  await seller.context.close();
  await buyer.context.close();
  console.log('offered, bought and recalled');
}

// Stopping asks first, and the page follows by itself.
{
  const { context, page } = await visit();
  await signIn(page, people.bo);
  await page.goto(`${server}/console/jobs/${waiting.id}`);
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('#acts .is-cancelled').waitFor({ timeout: 30_000 });
  await context.close();
  console.log('stopping');
}

// Without any script: signing in, pricing, submitting, reading the log.
{
  const { context, page } = await visit({ javaScriptEnabled: false });
  await signIn(page, people.ada);
  for (const path of ['/console/fleet', '/console/money', '/console/audit', `/console/jobs/${running.id}`]) {
    await page.goto(server + path);
    assert.ok(await page.locator('table').first().isVisible(), path);
  }
  assert.ok((await page.locator('pre.log').first().textContent()).includes('tick'));
  await page.goto(`${server}/console/jobs/new?as=yaml`);
  await page.getByRole('button', { name: 'Price it' }).click();
  await page.getByText('an hour').first().waitFor();
  await page.getByRole('button', { name: 'Submit' }).click();
  await page.waitForURL(/jobs\/job_/);
  await context.close();
  console.log('without scripts');
}

// Logs: what jobs wrote is found by its text, and whatever stands in a line is text.
{
  const { context, page, wrong } = await visit();
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
  await context.close();
  const still = await visit({ javaScriptEnabled: false, viewport: { width: 375, height: 740 } });
  await signIn(still.page, people.cleo);
  await still.page.goto(`${server}/console/logs?q=bold`);
  await still.page.getByText('No line fits.').waitFor();
  await still.context.close();
  console.log('logs');
}

// From a phone to a wall, in both sets of colours; and by keyboard.
for (const [name, options] of Object.entries({
  phone: { viewport: { width: 375, height: 740 }, hasTouch: true },
  wall: { viewport: { width: 3840, height: 2160 } },
  dark: { colorScheme: 'dark' },
})) {
  const { context, page, wrong } = await visit(options);
  await signIn(page, people.owner);
  for (const path of ['/console', '/console/fleet', '/console/jobs', `/console/jobs/${running.id}`, '/console/jobs/new', '/console/money', '/console/health', '/console/audit', '/console/admin']) {
    await page.goto(server + path);
    await page.waitForTimeout(250);
    await fits(page, name);
    await accessible(page, name);
    await shot(page, `${name}-${path.split('/').slice(2, 4).join('-').replace(/job_\w+/, 'one') || 'overview'}`);
  }
  assert.deepEqual(wrong, []);
  await context.close();
  console.log(name);
}
{
  const { context, page } = await visit();
  await signIn(page, people.owner);
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement?.className), 'skip');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement?.id ?? location.hash), 'main');
  await page.goto(`${server}/console/fleet`);
  await page.locator('[data-fleet][data-drawn]').waitFor();
  await page.locator('#canvas').focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');
  await page.waitForURL(/fleet\/gpu_/);
  await shot(page, 'device');
  await page.getByRole('button', { name: 'Dark' }).click();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  await pictures(page, '-dark');
  await page.goto(`${server}/console`);
  await page.getByRole('button', { name: 'Light' }).click();
  await pictures(page, '');
  await context.close();
  console.log('by keyboard');
}

await browser.close();
console.log('all done');
