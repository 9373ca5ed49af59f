// A client of version 2 of the official TypeScript SDK.
import { createRequire } from 'node:module';
import { any, capabilities, elicit, main, sample } from './features.mjs';

const modern = '2026-07-28';

async function connect({ modules, url, transport: kind, revision }) {
  const require = createRequire(`${modules}/`);
  const { Client, SSEClientTransport, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

  let changes = 0;
  const updated = [];
  const client = new Client({ name: 'typescript-v2', version: '1' }, {
    capabilities: capabilities(revision),
    ...negotiation(revision),
  });
  client.setRequestHandler('sampling/createMessage', sample);
  if (capabilities(revision).elicitation) client.setRequestHandler('elicitation/create', elicit);
  client.setNotificationHandler('notifications/tools/list_changed', () => { changes++; });
  client.setNotificationHandler('notifications/resources/updated', (n) => { updated.push(n.params.uri); });

  const Transport = kind === 'sse' ? SSEClientTransport : StreamableHTTPClientTransport;
  const transport = new Transport(new URL(url));
  await client.connect(transport);
  const agreed = client.getNegotiatedProtocolVersion();
  return {
    revision: agreed,
    call: (name, args, options) => client.callTool({ name, arguments: args }, options),
    tools: async () => (await client.listTools(undefined, { cacheMode: 'refresh' })).tools,
    resources: async () => (await client.listResources()).resources,
    templates: async () => (await client.listResourceTemplates()).resourceTemplates,
    read: (uri) => client.readResource({ uri }),
    prompts: async () => (await client.listPrompts()).prompts,
    prompt: (name, args) => client.getPrompt({ name, arguments: args }),
    followTools: async () => {
      if (agreed === modern) await client.listen({ toolsListChanged: true });
    },
    listChanges: () => changes,
    follow: async (uri) => {
      if (agreed === modern) {
        const subscription = await client.listen({ resourceSubscriptions: [uri] });
        return () => subscription.close();
      }
      await client.subscribeResource({ uri });
      return () => client.unsubscribeResource({ uri });
    },
    updates: () => updated,
    close: async () => {
      await transport.terminateSession?.();
      await client.close();
    },
  };
}

// negotiation is how the client finds its revision: with any it tries the newest, and
// falls back to a session.
function negotiation(revision) {
  switch (revision) {
    case any: return { versionNegotiation: { mode: 'auto' } };
    case modern: return { versionNegotiation: { mode: { pin: revision } } };
    default: return { supportedProtocolVersions: [revision] };
  }
}

await main(connect);
