// What every client does with a server, whichever major version of the SDK it is made of. The package's Go
// client does the same, see go_test.go.

// Provider keeps what the SDK asks it to, and is the user with the browser.
export class Provider {
  constructor(redirectUrl) {
    this.redirectUrl = redirectUrl;
    this.clientMetadata = { client_name: 'test', redirect_uris: [redirectUrl], token_endpoint_auth_method: 'none' };
  }
  clientInformation() { return this.information ?? { client_id: 'app' }; }
  saveClientInformation(information) { this.information = information; }
  tokens() { return this.saved; }
  saveTokens(tokens) { this.saved = tokens; }
  codeVerifier() { return this.verifier; }
  saveCodeVerifier(verifier) { this.verifier = verifier; }
  discoveryState() { return this.discovered; }
  saveDiscoveryState(state) { this.discovered = state; }
  async redirectToAuthorization(url) {
    const { headers } = await fetch(url, { redirect: 'manual' });
    this.answer = new URL(headers.get('location')).searchParams;
  }
}

// fetchOf is what the client sends its requests with. One that is to find the metadata at the root gets no
// hint, and does not find it elsewhere.
export function fetchOf({ metadata }) {
  if (metadata !== 'root') return fetch;
  return async (url, init) => {
    if (new URL(url).pathname === '/.well-known/oauth-protected-resource/mcp') return new Response(null, { status: 404 });
    const response = await fetch(url, init);
    if (response.status !== 401) return response;
    return new Response(await response.text(), { status: 401 });
  };
}

// main goes through all steps, and prints "ok" for each, or why not.
export async function main(connect) {
  const input = JSON.parse(process.argv[2]);
  const provider = new Provider(input.callback);
  const peer = await connect(input, provider);
  const report = {};
  const step = async (name, run) => {
    try {
      await run();
      report[name] = 'ok';
    } catch (error) {
      report[name] = String(error?.message ?? error);
    }
  };
  // A user that is sent to the browser comes back with a code, and retries.
  const loggedIn = async (run) => {
    try {
      return await run();
    } catch (error) {
      if (error?.constructor?.name !== 'UnauthorizedError') throw error;
      await peer.finish(provider.answer);
      return run();
    }
  };
  const call = async (name) => { // matrix wants arguments
    const result = await peer.call(name, name === input.more ? { key: 'k', event: 'e' } : {});
    if (result.isError) throw new Error(JSON.stringify(result));
    return result.content[0].text;
  };
  let served;
  const again = async () => same(await call(input.who), served);

  await step('login', () => loggedIn(() => peer.connect()));
  await step('call', async () => { served = await call(input.who); });
  await step('list', async () => same(`${(await peer.tools()).sort()}`, `${['echo', input.who, input.more].sort()}`));
  await step('refresh', async () => {
    provider.saved = { ...provider.saved, access_token: input.expired };
    await again();
    if (provider.saved.access_token === input.expired) throw new Error('the client has no new token');
  });
  await step('step-up', async () => {
    await loggedIn(() => call(input.more));
    await again();
  });
  if (report['step-up'] !== 'ok') { // The connection is as good as before.
    await step('step-up without a refresh token', async () => {
      await again();
      delete provider.saved.refresh_token;
      await loggedIn(() => call(input.more));
      await again();
    });
  }
  await step('never', () => call(input.never));
  await step('afterwards', again);
  await peer.close();
  console.log(JSON.stringify(report));
}

function same(got, want) {
  if (got !== want) throw new Error(`got ${got}, want ${want}`);
}
