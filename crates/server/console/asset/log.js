// @ts-check
// A job's log as it is written: what comes is added as text, which is all it can be.
import { say } from './page.js';

const box = /** @type {HTMLElement} */ (document.querySelector('[data-log]'));
const MOST = 400_000;

/** Colours and movements of a terminal are left out; what else would act is replaced. @param {string} text */
export function inert(text) {
  return text
    .replace(/\u001b\[[0-?]*[ -/]*[@-~]/g, '')
    .replace(/\r\n?/g, '\n')
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, '\ufffd');
}

async function follow() {
  const from = Number(box.dataset.offset ?? 0);
  const answer = await fetch(`${box.dataset.log}&follow=true&offset=${from}`);
  const pieces = answer.ok ? answer.body?.pipeThrough(new TextDecoderStream()).getReader() : undefined;
  for (;;) {
    const { done, value } = await pieces?.read() ?? { done: true, value: '' };
    if (done) break;
    add(inert(value ?? ''));
  }
  say('The log has ended');
}

/** @param {string} text */
function add(text) {
  document.getElementById('log-empty')?.remove();
  const below = box.scrollHeight - box.scrollTop - box.clientHeight < 30;
  box.append(text);
  while ((box.textContent?.length ?? 0) > MOST && box.firstChild && box.childNodes.length > 1) box.firstChild.remove();
  if (below) box.scrollTop = box.scrollHeight;
}

box.scrollTop = box.scrollHeight;
if (box.dataset.follow !== undefined) void follow().catch(() => {});
