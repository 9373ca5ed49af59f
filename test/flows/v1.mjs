// A client of version 1 of the official TypeScript SDK.
import { createRequire } from 'node:module';
import { fetchOf, main } from './steps.mjs';

async function connect(input, authProvider) {
  const { modules, url } = input;
  const require = createRequire(`${modules}/`);
  const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
  const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');

  let client, transport;
  return {
    connect: () => { // A transport that was refused is of no more use.
      client = new Client({ name: 'typescript-v1', version: '1' });
      transport = new StreamableHTTPClientTransport(new URL(url), { authProvider, fetch: fetchOf(input) });
      return client.connect(transport);
    },
    finish: (answer) => transport.finishAuth(answer.get('code')),
    call: (name, args) => client.callTool({ name, arguments: args }),
    tools: async () => (await client.listTools()).tools.map((tool) => tool.name),
    close: async () => {
      await transport.terminateSession();
      await client.close();
    },
  };
}

await main(connect);
