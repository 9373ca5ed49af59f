// A client of version 2 of the official TypeScript SDK.
import { createRequire } from 'node:module';
import { fetchOf, main } from './steps.mjs';

const modern = '2026-07-28';

async function connect(input, authProvider) {
  const { modules, url, revision } = input;
  const require = createRequire(`${modules}/`);
  const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

  let client, transport;
  return {
    connect: () => { // A transport that was refused is of no more use.
      client = new Client({ name: 'typescript-v2', version: '1' },
        revision === modern ? { versionNegotiation: { mode: { pin: revision } } } : { supportedProtocolVersions: [revision] });
      transport = new StreamableHTTPClientTransport(new URL(url), { authProvider, fetch: fetchOf(input) });
      return client.connect(transport);
    },
    finish: (answer) => transport.finishAuth(answer.get('code'), answer.get('iss')),
    call: (name, args) => client.callTool({ name, arguments: args }),
    tools: async () => (await client.listTools()).tools.map((tool) => tool.name),
    close: async () => {
      await transport.terminateSession?.();
      await client.close();
    },
  };
}

await main(connect);
