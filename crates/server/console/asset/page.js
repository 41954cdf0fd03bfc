// @ts-check
// What pages and their modules share. It imports nothing, so that whoever wants it never waits for the page.

/**
 * Shows every moment below a node in the reader's zone.
 * @param {ParentNode} root
 */
export function localise(root) {
  const now = new Date();
  for (const time of root.querySelectorAll('time[datetime]')) {
    const at = new Date(time.getAttribute('datetime') ?? '');
    if (Number.isNaN(at.getTime())) continue;
    const sameDay = at.toDateString() === now.toDateString();
    const sameYear = at.getFullYear() === now.getFullYear();
    time.textContent = sameDay
      ? at.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' })
      : at.toLocaleString(undefined, {
        day: 'numeric', month: 'short', year: sameYear ? undefined : 'numeric', hour: '2-digit', minute: '2-digit',
      });
    time.setAttribute('title', at.toLocaleString(undefined, { dateStyle: 'full', timeStyle: 'long' }));
  }
}

/** What is wider than its box can be scrolled by keyboard too. @param {ParentNode} root */
export function reach(root) {
  for (const box of root.querySelectorAll('.scroll, .sheet')) {
    if (box.scrollWidth > box.clientWidth) box.setAttribute('tabindex', '0'); else box.removeAttribute('tabindex');
  }
}

/** Says something to a screen reader, once. @param {string} text */
export function say(text) {
  const said = document.getElementById('said');
  if (said) said.textContent = text;
}
