// A client of version 1 of the official TypeScript SDK.
import { createRequire } from 'node:module';
import { capabilities, elicit, main, sample } from './features.mjs';

async function connect({ modules, url, transport: kind, revision }) {
  const require = createRequire(`${modules}/`);
  const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
  const { SSEClientTransport } = require('@modelcontextprotocol/sdk/client/sse.js');
  const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const types = require('@modelcontextprotocol/sdk/types.js');

  let changes = 0;
  const updated = [];
  const client = new Client({ name: 'typescript-v1', version: '1' }, { capabilities: capabilities(revision) });
  client.setRequestHandler(types.CreateMessageRequestSchema, sample);
  if (capabilities(revision).elicitation) client.setRequestHandler(types.ElicitRequestSchema, elicit);
  client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => { changes++; });
  client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, (n) => { updated.push(n.params.uri); });

  const Transport = kind === 'sse' ? SSEClientTransport : StreamableHTTPClientTransport;
  const transport = pin(new Transport(new URL(url)), revision);
  await client.connect(transport);
  return {
    revision: transport.agreed(),
    call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
    tools: async () => (await client.listTools()).tools,
    resources: async () => (await client.listResources()).resources,
    templates: async () => (await client.listResourceTemplates()).resourceTemplates,
    read: (uri) => client.readResource({ uri }),
    prompts: async () => (await client.listPrompts()).prompts,
    prompt: (name, args) => client.getPrompt({ name, arguments: args }),
    followTools: async () => {}, // Sessions are told without asking.
    listChanges: () => changes,
    follow: async (uri) => {
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

// pin makes the SDK ask for a revision: it has no option for it, and always asks for the
// newest that it knows.
function pin(transport, revision) {
  let agreed;
  const send = transport.send.bind(transport);
  transport.send = (message, options) => send(
    message.method === 'initialize' ? { ...message, params: { ...message.params, protocolVersion: revision } } : message,
    options,
  );
  const set = transport.setProtocolVersion.bind(transport);
  transport.setProtocolVersion = (version) => {
    agreed = version;
    set(version);
  };
  transport.agreed = () => agreed;
  return transport;
}

await main(connect);
