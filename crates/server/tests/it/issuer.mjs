// A real OIDC provider for the login tests. Prints its address, then answers /mint by walking the whole
// login at itself, as a browser would, and giving the ID token at the end of it.
import http from 'node:http';
import { generateKeyPairSync } from 'node:crypto';
import { Provider } from 'oidc-provider';

const jwk = (type, options, alg) => ({
  ...generateKeyPairSync(type, options).privateKey.export({ format: 'jwk' }), alg, use: 'sig', kid: `test-${alg}`,
});
const keys = [
  jwk('rsa', { modulusLength: 2048 }, 'RS256'),
  jwk('ec', { namedCurve: 'P-256' }, 'ES256'),
  jwk('ed25519', {}, 'EdDSA'),
];
const back = 'https://tenure.example/back';
const client = (client_id, alg) => ({
  client_id, token_endpoint_auth_method: 'none', response_types: ['id_token'], grant_types: ['implicit'],
  redirect_uris: [back], id_token_signed_response_alg: alg,
});

const server = http.createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [client('tenure-RS256', 'RS256'), client('tenure-ES256', 'ES256'), client('tenure-EdDSA', 'EdDSA')],
    jwks: { keys },
    responseTypes: ['id_token'],
    features: { devInteractions: { enabled: false } },
    findAccount: (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    async loadExistingGrant(ctx) {
      const { client, provider, session } = ctx.oidc;
      const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope('openid');
      await grant.save();
      return grant;
    },
  });
  const answer = provider.callback();
  server.on('request', async (request, response) => {
    try {
      const url = new URL(request.url, issuer);
      if (url.pathname === '/mint') {
        response.end(await mint(issuer, url.searchParams));
      } else if (url.pathname.startsWith('/interaction/')) {
        const { params } = await provider.interactionDetails(request, response);
        await provider.interactionFinished(request, response, { login: { accountId: params.login_hint } });
      } else {
        answer(request, response);
      }
    } catch (error) {
      response.statusCode = 500;
      response.end(String(error.stack));
    }
  });
  console.log(issuer);
});

async function mint(issuer, wanted) {
  const ask = new URLSearchParams({
    client_id: wanted.get('client'), response_type: 'id_token', scope: 'openid', redirect_uri: back,
    nonce: wanted.get('nonce'), login_hint: wanted.get('sub'),
  });
  const cookies = new Map();
  let next = `${issuer}/auth?${ask}`;
  for (let step = 0; step < 10; step++) {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const response = await fetch(next, { redirect: 'manual', headers: { cookie } });
    for (const line of response.headers.getSetCookie()) {
      const [pair] = line.split(';');
      const [name, ...value] = pair.split('=');
      cookies.set(name, value.join('='));
    }
    const location = response.headers.get('location');
    if (!location) throw new Error(`${response.status} at ${next}: ${await response.text()}`);
    if (location.startsWith(back)) {
      const token = new URLSearchParams(new URL(location).hash.slice(1)).get('id_token');
      if (!token) throw new Error(location);
      return token;
    }
    next = new URL(location, issuer).href;
  }
  throw new Error('the login went in circles');
}

process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
