// A witness sees the HTTP exchanges of one session, and cuts a stream when it is told to. witness.go does
// the same for Go.

const unasked = 590; // see node.go

export class Witness {
  constructor(keeps) {
    this.keeps = keeps; // its connections
    this.troubles = [];
    this.told = false;
    this.cut = 0; // after how many events the next stream of a call is cut; 0 is never
    this.resumed = 0;
    this.lost = () => {};
    this.stuck = () => {};
    this.operation = 0;
    this.broke = false; // the stream of the operation's call
    this.fetch = (url, init) => this.exchange(url, init);
  }

  // begin has lost called if an answer to the server is lost, and stuck if a call's stream has broken that cannot be
  // resumed.
  begin(cut, lost, stuck) {
    [this.cut, this.resumed, this.lost, this.stuck] = [cut, 0, lost, stuck];
    this.broke = false;
    this.operation++;
  }

  // take returns the troubles since it was called last.
  take() {
    const { troubles } = this;
    [this.troubles, this.lost, this.stuck] = [[], () => {}, () => {}];
    return troubles;
  }

  // note keeps a trouble. Those of an earlier call say nothing of this one.
  note({ method, call, answer, operation }, more) {
    const now = operation === this.operation;
    this.troubles.push({ method, call: call && now, answer: answer && now, status: 0, text: '', ...more });
    if (answer && now) this.lost();
  }

  unreadable(error) {
    this.note({ method: '' }, { unreadable: true, text: describe(error) });
  }

  async exchange(url, init) {
    const message = init.method === 'POST' ? JSON.parse(init.body) : {};
    const kind = { method: init.method, operation: this.operation, call: 'method' in message && 'id' in message, answer: !('method' in message) && 'id' in message };
    const headers = new Headers(init.headers);
    if (!this.keeps) headers.set('Connection', 'close');
    let response;
    try {
      response = await fetch(url, { ...init, headers });
    } catch (error) {
      if (!init.signal?.aborted) this.note(kind, { text: describe(error) });
      throw error;
    }
    if (response.status === unasked) {
      this.note(kind, { unasked: true });
      throw new TypeError('the client did not get as far as the server');
    }
    if (!response.ok && init.method !== 'DELETE') {
      if (response.status === 404 && headers.has('mcp-session-id')) this.told = true;
      this.note(kind, { status: response.status });
    }
    if (headers.has('last-event-id')) this.resumed++;
    if (!response.ok || !response.body) return response;
    const { status, statusText } = response;
    return new Response(this.watch(response, kind, init.signal), { status, statusText, headers: response.headers });
  }

  // watch passes a body on.
  watch(response, kind, signal) {
    const streams = response.headers.get('content-type')?.startsWith('text/event-stream') && kind.call;
    const [cut, reader, decoder] = [streams ? this.cut : 0, response.body.getReader(), new TextDecoder()];
    if (streams) this.cut = 0;
    let [text, cutNow] = ['', false];
    const broken = () => {
      if (!streams || kind.operation !== this.operation) return;
      this.broke = true;
      if (!/^id:/m.test(text)) this.stuck();
    };
    const pull = async (controller) => {
      if (cutNow) {
        broken();
        reader.cancel().catch(() => {});
        return controller.error(new Error('the client has cut the stream'));
      }
      let next;
      try {
        next = await reader.read();
      } catch (error) {
        if (!signal?.aborted) {
          this.note(kind, { text: describe(error) });
          broken();
        }
        return controller.error(error);
      }
      if (next.done) {
        if (streams && !/"(result|error)":/.test(text)) {
          this.note(kind, { text: 'the stream ended without an answer' });
          broken();
        }
        return controller.close();
      }
      if (!streams) return controller.enqueue(next.value);
      const before = text.length;
      text += decoder.decode(next.value, { stream: true });
      const end = cut && text.split('\n\n', cut).join('\n\n').length + 2;
      if (!cut || end > text.length) return controller.enqueue(next.value);
      cutNow = true;
      return controller.enqueue(next.value.subarray(0, end - before)); // what the server sends is ASCII
    };
    // It reads only when it is read from, so that nothing is lost that came before the cut.
    return new ReadableStream({ pull, cancel: (reason) => reader.cancel(reason).catch(() => {}) }, { highWaterMark: 0 });
  }
}

export function describe(error) {
  return [error?.message ?? error, error?.cause?.code ?? error?.cause?.message].filter(Boolean).join(': ');
}
