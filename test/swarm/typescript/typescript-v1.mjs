// A client of version 1 of the official SDK.
export async function connect({ require, url, ms, fetch, onerror, elicit }) {
  const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
  const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const { ElicitRequestSchema } = require('@modelcontextprotocol/sdk/types.js');

  const client = new Client({ name: 'swarm', version: '1' }, { capabilities: { elicitation: {} } });
  client.onerror = onerror;
  client.setRequestHandler(ElicitRequestSchema, elicit);
  const transport = new StreamableHTTPClientTransport(new URL(url), { fetch });
  await client.connect(transport, { timeout: ms });
  return {
    call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
    close: async (lives) => {
      if (lives) await transport.terminateSession();
      await client.close();
    },
  };
}
