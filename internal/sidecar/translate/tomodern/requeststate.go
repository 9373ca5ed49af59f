package tomodern

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
)

// boundTo is the binding of a call's requestState. It is worked out once, because that takes a
// while. Then the call does not keep the arguments any more, which may be large.
func (c *call) boundTo() []byte {
	c.binding.Do(func() {
		c.bound = boundTo(c.group, c.method, []byte(c.name), c.arguments)
		c.arguments = nil
	})
	return c.bound
}

// boundTo binds a requestState to the principal that made the call, the client's capabilities,
// the method, the name and the arguments. A client may come back with a refreshed token, and may
// spell its arguments differently the second time: only their values count. All clients without
// a token have the same principal, and so do all whose tokens do not name one. What tells these
// apart is that only one of them has got the requestState, which cannot be guessed.
func boundTo(g *group, method string, name, arguments []byte) []byte {
	hash := sha256.New()
	for _, part := range [][]byte{[]byte(g.caller.Principal), []byte(g.capabilities.text()), []byte(method), name, canonical(arguments)} {
		_, _ = hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = hash.Write(part)
	}
	return hash.Sum(nil)
}

// canonical spells a value in one way. Numbers stay as they are, because some cannot be read
// without loss.
func canonical(value []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var decoded any
	if decoder.Decode(&decoded) != nil {
		return value
	}
	text, err := json.Marshal(decoded)
	if err != nil {
		return value
	}
	return text
}
