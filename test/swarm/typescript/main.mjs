// Many clients of the official SDK for TypeScript. Each line of standard input is an order, and each line of
// standard output says what came of one; see node.go.
import { createInterface } from 'node:readline';
import { createRequire } from 'node:module';
import { describe, Witness } from './witness.mjs';

const [make, modules, url] = process.argv.slice(2);
const { connect } = await import(`./${make}.mjs`);
const require = createRequire(`${modules}/`);

class Session {
  constructor({ keeps }) {
    this.witness = new Witness(keeps);
    this.asked = 0;
    this.fail = () => {};
  }

  // operate does something with the SDK. It also ends if the SDK would never return.
  async operate({ ms, cut = 0 }, use) {
    const reply = { before: this.witness.told };
    this.asked = 0;
    const hopeless = new Promise((_, reject) => {
      const give = (flag, text) => {
        reply[flag] = true;
        reject(new Error(text));
      };
      this.fail = () => give('gaveUp', 'the SDK has given up the stream of a call');
      this.witness.begin(cut, () => give('waits', 'the answer to a question was lost'), () => give('gaveUp', 'the stream of a call cannot be resumed'));
    });
    hopeless.catch(() => {});
    try {
      Object.assign(reply, await Promise.race([use(ms), hopeless]));
    } catch (error) {
      reply.error = describe(error) || 'an error without a message';
    }
    this.fail = () => {};
    return { ...reply, asked: this.asked, resumed: this.witness.resumed, troubles: this.witness.take(), told: this.witness.told };
  }

  // onerror is told what the SDK does not tell the caller.
  onerror(error) {
    if (/Maximum reconnection attempts/.test(error.message) && this.witness.broke) this.fail();
    if (/Zod|SyntaxError/.test(error.name)) this.witness.unreadable(error);
  }

  open(order) {
    return this.operate(order, async (ms) => {
      this.peer = await connect({
        require, url, ms, fetch: this.witness.fetch, onerror: (error) => this.onerror(error),
        elicit: () => {
          this.asked++;
          return { action: 'accept', content: {} };
        },
      });
    });
  }

  tick(order) {
    return this.operate(order, async (timeout) => ({ answer: text(await this.peer.call('tick', { text: order.word }, { timeout })) }));
  }

  ask(order) {
    return this.operate(order, async (timeout) => ({ answer: text(await this.peer.call('ask', { text: 'why?' }, { timeout })) }));
  }

  stream(order) {
    return this.operate(order, async (timeout) => {
      const progress = [];
      const onprogress = (p) => progress.push(p.progress);
      return { answer: text(await this.peer.call('burst', { n: order.number }, { timeout, onprogress })), progress };
    });
  }

  cancel(order) {
    return this.operate(order, async (timeout) => {
      const abort = new AbortController();
      const onprogress = () => abort.abort('cancelled by the swarm');
      try {
        return { answer: text(await this.peer.call('sleep', { ms: 600_000, text: 'asleep' }, { timeout, onprogress, signal: abort.signal })) };
      } catch (error) {
        if (!abort.signal.aborted) throw error;
        return { cancelled: true };
      }
    });
  }

  end(order) {
    return this.operate(order, () => this.peer?.close(order.lives));
  }
}

function text(result) {
  if (result.isError || result.content.length !== 1) throw new Error(JSON.stringify(result));
  return result.content[0].text;
}

const sessions = new Map();

async function obey(order) {
  if (order.do === 'open') sessions.set(order.session, new Session(order));
  const session = sessions.get(order.session);
  if (order.do === 'end') sessions.delete(order.session);
  const reply = await session[order.do](order);
  process.stdout.write(`${JSON.stringify({ ...reply, id: order.id })}\n`);
}

for await (const line of createInterface({ input: process.stdin })) {
  obey(JSON.parse(line)); // not awaited: the clients do not wait for one another
}
process.exit(0);
