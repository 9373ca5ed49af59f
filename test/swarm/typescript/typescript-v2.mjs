// A client of version 2 of the official SDK. It uses the newest revision with sessions.
export async function connect({ require, url, ms, fetch, onerror, elicit }) {
  const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

  const client = new Client({ name: 'swarm', version: '1' }, { capabilities: { elicitation: {} }, supportedProtocolVersions: ['2025-11-25'] });
  client.onerror = onerror;
  client.setRequestHandler('elicitation/create', elicit);
  const transport = new StreamableHTTPClientTransport(new URL(url), { fetch });
  await client.connect(transport, { timeout: ms });
  return {
    call: (name, args, options) => client.callTool({ name, arguments: args }, options),
    close: async (lives) => {
      if (lives) await transport.terminateSession();
      await client.close();
    },
  };
}
