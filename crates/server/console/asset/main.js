// @ts-check
// What every page has: moments in the reader's zone, confirmation of what cannot be undone, and the page's own modules.
import { localise, reach } from './page.js';

document.addEventListener('submit', (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  const question = form.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});

// Where a form asks in which zone its times are: the reader's, unless they said another.
for (const field of document.querySelectorAll('input[data-zone]')) {
  if (field instanceof HTMLInputElement && !field.value) field.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
}

// A choice that is the whole form sends it.
document.addEventListener('change', (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (target instanceof HTMLSelectElement && target.dataset.sends !== undefined) target.form?.requestSubmit();
});

localise(document);
reach(document);
window.addEventListener('resize', () => reach(document));
// On a phone the pages are a row that scrolls: where one is stands in view.
document.querySelector('nav a[aria-current]')?.scrollIntoView({ inline: 'center', block: 'nearest' });
if (document.querySelector('main[data-watch]')) await import('./live.js');
if (document.querySelector('[data-chart]')) (await import('./chart.js')).drawAll(document);
if (document.querySelector('[data-log]')) await import('./log.js');
if (document.querySelector('[data-fleet]')) await import('./fleet.js');
if (document.querySelector('[data-preview]')) await import('./submit.js');
if (document.querySelector('[data-week]')) await import('./calendar.js');
// For whoever waits until a page stands as it will.
document.documentElement.dataset.ready = '';
