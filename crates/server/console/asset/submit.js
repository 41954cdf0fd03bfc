// @ts-check
// Shows what a job would need and cost while its form is being filled in.
import { parse } from './html.js';

const form = /** @type {HTMLFormElement} */ (document.querySelector('form[data-preview]'));
const place = /** @type {HTMLElement} */ (document.getElementById('preview'));
let waiting = 0;
let asked = 0;

function soon() {
  window.clearTimeout(waiting);
  waiting = window.setTimeout(ask, 250);
}

async function ask() {
  const mine = ++asked;
  place.setAttribute('aria-busy', 'true');
  const body = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (typeof value === 'string') body.append(name, value);
  try {
    const answer = await fetch(form.dataset.preview ?? '', { method: 'POST', body, headers: { 'x-tenure-live': '1' } });
    if (answer.status === 401) return location.reload();
    const text = await answer.text();
    if (mine === asked && answer.ok) place.replaceChildren(...[...parse(text).body.childNodes].map((node) => document.importNode(node, true)));
  } catch {
    // Asked again with the next change.
  } finally {
    if (mine === asked) place.removeAttribute('aria-busy');
  }
}

form.addEventListener('input', soon);
form.addEventListener('change', soon);
soon();
