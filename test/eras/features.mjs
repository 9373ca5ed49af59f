// What every client does with a server, whichever major version of the SDK it is made of.
// The package's Go client does the same, see client_test.go.

const patience = 60_000; // a hang guard: nothing is claimed to happen within it

// any is the revision of clients that take what they get.
export const any = 'any';

// run uses all features one after the other and says of each "ok", or why not.
export async function run(peer, { key, revision }) {
  const report = { served: '', features: {} };
  for (const [name, use] of Object.entries(features)) {
    try {
      await within(patience, use(peer, key, revision, report));
      report.features[name] = 'ok';
    } catch (error) {
      report.features[name] = describe(error);
    }
  }
  return report;
}

// Those that have two calls at a time come last: they may leave a process busy.
const features = {
  async tools(peer, key, revision, report) {
    const names = (await peer.tools()).map((tool) => tool.name);
    expect(names.includes('echo'), `tools are ${names}`);
    equal(text(await peer.call('echo', { text: 'grüß dich 🚢' })), 'grüß dich 🚢');
    report.served = text(await peer.call('revision', {}));
    const counted = await peer.call('count', { key, event: 'nothing' });
    equal(text(counted), '0');
    if (revision >= '2025-06-18') equal(JSON.stringify(counted.structuredContent), '{"number":0}');
  },

  async resources(peer, key) {
    const uris = (await peer.resources()).map((resource) => resource.uri);
    equal(`${uris}`, 'matrix://plain');
    const templates = (await peer.templates()).map((template) => template.uriTemplate);
    equal(`${templates}`, 'matrix://item/{key}');
    equal((await peer.read('matrix://plain')).contents[0].text, 'plain');
    equal((await peer.read(`matrix://item/${key}`)).contents[0].text, `item ${key}`);
  },

  async prompts(peer) {
    equal(`${(await peer.prompts()).map((prompt) => prompt.name)}`, 'greeting');
    equal((await peer.prompt('greeting', { name: 'Ada' })).messages[0].content.text, 'Greet Ada.');
  },

  // The adapter drops notifications while no stream is open, so repeat the change until one arrives.
  async list_changed(peer, key) {
    await peer.followTools();
    const before = peer.listChanges();
    await until(async () => {
      await peer.call('grow', { key });
      return soon(() => peer.listChanges() > before);
    }, () => 'no notification came');
    expect((await peer.tools()).some((tool) => tool.name === `grown-${key}`), 'the list has not changed');
  },

  async subscription(peer, key) {
    const uri = `matrix://item/${key}`;
    const end = await peer.follow(uri);
    await until(async () => {
      await peer.call('touch', { key });
      return soon(() => peer.updates().includes(uri));
    }, () => `updates were of ${peer.updates()}`);
    await end();
  },

  async elicitation(peer, key) {
    equal(text(await peer.call('order', { key })), 'ordered for Ada');
    equal(await count(peer, key, 'ordered'), 1);
  },

  async sampling(peer, key) {
    equal(text(await peer.call('ponder', { key })), `the model said: answer to question of ${key}`);
    equal(await count(peer, key, 'pondered'), 1);
  },

  // The result comes only after the client has said that it saw the steps.
  async progress(peer, key) {
    const seen = [];
    const call = peer.call('steps', { key }, { onprogress: (p) => seen.push(`${p.progress}/${p.total}`) });
    call.catch(() => {}); // It is looked at below.
    await until(() => seen.length >= 3, () => `progress was ${seen}`);
    await peer.call('seen', { key });
    equal(text(await call), 'done');
    equal(`${seen}`, '1/3,2/3,3/3');
  },

  async cancellation(peer, key) {
    const abort = new AbortController();
    const call = peer.call('wait', { key }, { signal: abort.signal });
    call.catch(() => {}); // It is looked at below.
    await until(async () => (await count(peer, key, 'started')) === 1, () => 'the call did not start');
    abort.abort();
    const error = await call.then(() => undefined, (e) => e);
    expect(error, 'a call that was cancelled returned a result');
    await until(async () => (await count(peer, key, 'cancelled')) === 1, () => 'the server did not see the cancellation');
    equal(await count(peer, key, 'started'), 1);
  },
};

// elicit and sample are what clients answer to servers.
export const elicit = () => ({ action: 'accept', content: { name: 'Ada' } });
export const sample = (request) => ({
  role: 'assistant',
  model: 'test-model',
  content: { type: 'text', text: `answer to ${request.params.messages[0].content.text ?? request.params.messages[0].content[0].text}` },
});

// capabilities are those that a client of the revision can have.
export const capabilities = (revision) => ({ sampling: {}, ...((revision === any || revision >= '2025-06-18') && { elicitation: {} }) });

// main connects, and prints the report as one line of JSON.
export async function main(connect) {
  const [modules, url, transport, revision, key] = process.argv.slice(2);
  let report = { served: '', features: {} };
  try {
    const peer = await within(patience, connect({ modules, url, transport, revision }));
    if (revision !== any && peer.revision !== revision) throw new Error(`agreed on ${peer.revision}, want ${revision}`);
    report = await run(peer, { key, revision: peer.revision });
    await within(patience, peer.close());
  } catch (error) {
    report.connection = describe(error);
  }
  process.stdout.write(`${JSON.stringify(report)}\n`, () => process.exit(0));
}

async function count(peer, key, event) {
  return Number(text(await peer.call('count', { key, event })));
}

function text(result) {
  const joined = result.content.map((block) => block.text).join('\n');
  if (result.isError) throw new Error(`tool error: ${joined}`);
  return joined;
}

function describe(error) {
  const code = error.code === undefined ? '' : `${error.code}: `;
  return `${code}${error.message || error}`;
}

function expect(condition, message) {
  if (!condition) throw new Error(message);
}

function equal(got, want) {
  expect(got === want, `got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// until gives up before the feature as a whole does, so that it can say why.
async function until(condition, why) {
  const end = Date.now() + patience / 2;
  while (!(await condition())) {
    expect(Date.now() < end, why());
    await pause(20);
  }
}

// soon is for what can be missed, and is then made to happen again.
async function soon(condition) {
  for (let waited = 0; waited < 25; waited++) {
    if (condition()) return true;
    await pause(20);
  }
  return false;
}

function within(ms, promise) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`nothing came of it within ${ms} ms`)), ms); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
