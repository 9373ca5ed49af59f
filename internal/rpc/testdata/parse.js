// Says what JSON.parse reads out of JSON-RPC messages; with the argument lists, out of the
// entries of lists. Requests and answers on standard input and output begin with their
// length, in four bytes.
'use strict'
const fs = require('fs')

function read (size) {
  const buffer = Buffer.alloc(size)
  for (let have = 0; have < size;) {
    const n = fs.readSync(0, buffer, have, size - have)
    if (n === 0) process.exit(0)
    have += n
  }
  return buffer
}

function write (buffer) {
  for (let done = 0; done < buffer.length;) done += fs.writeSync(1, buffer, done)
}

// What a value is. A text is in UTF-16, because only that tells what a surrogate without
// its other half is; a number is the bits of its double.
function describe (value) {
  if (typeof value === 'string') return 'utf16:' + Buffer.from(value, 'utf16le').swap16().toString('hex')
  if (typeof value === 'number') {
    const bits = Buffer.alloc(8)
    bits.writeDoubleBE(value)
    return 'double:' + bits.toString('hex')
  }
  return value === null ? 'null' : 'other'
}

function members (text) {
  // A copy, as servers make one that check messages against a schema.
  const message = { ...JSON.parse(text) }
  const params = { ...message.params }
  const meta = { ...params._meta }
  const found = {
    id: message.id,
    method: message.method,
    result: message.result,
    error: message.error,
    name: params.name,
    uri: params.uri,
    requestId: params.requestId,
    requestedVersion: params.protocolVersion,
    paramToken: params.progressToken,
    metaToken: meta.progressToken,
    protocolVersion: meta['io.modelcontextprotocol/protocolVersion'],
    subscriptionId: meta['io.modelcontextprotocol/subscriptionId']
  }
  const described = {}
  for (const [name, value] of Object.entries(found)) {
    if (value !== undefined) described[name] = describe(value)
  }
  return described
}

// What the entries of lists are known by, by list and index.
function entries (text) {
  const result = { ...{ ...JSON.parse(text) }.result }
  const described = {}
  for (const [list, key] of Object.entries({ tools: 'name', prompts: 'name', resources: 'uri', resourceTemplates: 'uriTemplate' })) {
    for (const [i, entry] of Object.entries({ ...result[list] })) {
      const value = { ...entry }[key]
      if (value !== undefined) described[list + '/' + i] = describe(value)
    }
  }
  return described
}

const look = process.argv[2] === 'lists' ? entries : members
for (;;) {
  const request = read(read(4).readUInt32BE())
  let answer
  try {
    answer = look(request.toString('utf8'))
  } catch (failure) {
    answer = { failure: String(failure) }
  }
  const text = Buffer.from(JSON.stringify(answer))
  const size = Buffer.alloc(4)
  size.writeUInt32BE(text.length)
  write(Buffer.concat([size, text]))
}
