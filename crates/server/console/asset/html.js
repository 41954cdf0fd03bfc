// @ts-check
// Pages of this server as documents: the one place where text becomes markup. What others wrote was escaped when the page
// was made.

/** @type {{ createHTML(text: string): any }} */
const policy = /** @type {any} */ (window).trustedTypes?.createPolicy('tenure', { createHTML: (/** @type {string} */ text) => text })
  ?? { createHTML: (/** @type {string} */ text) => text };

/** @param {string} text */
export function parse(text) {
  return new DOMParser().parseFromString(policy.createHTML(text), 'text/html');
}
