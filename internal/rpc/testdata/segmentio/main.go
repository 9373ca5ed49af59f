// Command segmentio says what segmentio/encoding reads out of JSON-RPC messages. Requests
// and answers on standard input and output begin with their length, in four bytes. The
// first byte of a request says how names are matched: 'i' ignores case, 'c' does not, as
// in the official Go SDK. 'I' and 'C' do the same, and ask for the entries of lists.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/segmentio/encoding/json"
)

// message, as well as shortMeta, has no name of more than 16 bytes: for such structs the
// library matches names in the way that the advisory is about.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method json.RawMessage `json:"method"`
	Params struct {
		Meta             json.RawMessage `json:"_meta"`
		ProgressToken    json.RawMessage `json:"progressToken"`
		Name             json.RawMessage `json:"name"`
		URI              json.RawMessage `json:"uri"`
		RequestID        json.RawMessage `json:"requestId"`
		RequestedVersion json.RawMessage `json:"protocolVersion"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

type shortMeta struct {
	ProgressToken json.RawMessage `json:"progressToken"`
}

type longMeta struct {
	ProtocolVersion json.RawMessage `json:"io.modelcontextprotocol/protocolVersion"`
	SubscriptionID  json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	var size [4]byte
	for {
		if _, err := io.ReadFull(in, size[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		request := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(in, request); err != nil {
			return err
		}
		look := members
		if request[0] == 'I' || request[0] == 'C' {
			look = entries
		}
		read, err := look(request[1:], request[0] == 'i' || request[0] == 'I')
		if err != nil {
			read = map[string]string{"failure": err.Error()}
		}
		answer, err := json.Marshal(read)
		if err != nil {
			return err
		}
		binary.BigEndian.PutUint32(size[:], uint32(len(answer)))
		if _, err := out.Write(append(size[:], answer...)); err != nil {
			return err
		}
	}
}

func members(text []byte, anyCase bool) (map[string]string, error) {
	var m message
	if err := decode(text, &m, anyCase); err != nil {
		return nil, err
	}
	var short shortMeta
	var long longMeta
	if m.Params.Meta != nil {
		if err := errors.Join(decode(m.Params.Meta, &short, anyCase), decode(m.Params.Meta, &long, anyCase)); err != nil {
			return nil, err
		}
	}
	read := map[string]string{}
	for name, value := range map[string]json.RawMessage{
		"id": m.ID, "method": m.Method, "result": m.Result, "error": m.Error,
		"name": m.Params.Name, "uri": m.Params.URI, "requestId": m.Params.RequestID,
		"requestedVersion": m.Params.RequestedVersion, "paramToken": m.Params.ProgressToken,
		"metaToken": short.ProgressToken, "protocolVersion": long.ProtocolVersion, "subscriptionId": long.SubscriptionID,
	} {
		if value != nil {
			read[name] = describe(value)
		}
	}
	return read, nil
}

// lists is the result of a request for a list.
type lists struct {
	Result struct {
		Tools             []json.RawMessage `json:"tools"`
		Prompts           []json.RawMessage `json:"prompts"`
		Resources         []json.RawMessage `json:"resources"`
		ResourceTemplates []json.RawMessage `json:"resourceTemplates"`
	} `json:"result"`
}

// entry has all that entries of lists are known by.
type entry struct {
	Name        json.RawMessage `json:"name"`
	URI         json.RawMessage `json:"uri"`
	URITemplate json.RawMessage `json:"uriTemplate"`
}

// entries says what the entries of lists are known by, by list and index. It leaves out what is no
// object.
func entries(text []byte, anyCase bool) (map[string]string, error) {
	var l lists
	if err := decode(text, &l, anyCase); err != nil {
		return nil, err
	}
	read := map[string]string{}
	keep := func(list string, entries []json.RawMessage, key func(entry) json.RawMessage) {
		for i, text := range entries {
			var e entry
			if decode(text, &e, anyCase) == nil && key(e) != nil {
				read[fmt.Sprintf("%s/%d", list, i)] = describe(key(e))
			}
		}
	}
	keep("tools", l.Result.Tools, func(e entry) json.RawMessage { return e.Name })
	keep("prompts", l.Result.Prompts, func(e entry) json.RawMessage { return e.Name })
	keep("resources", l.Result.Resources, func(e entry) json.RawMessage { return e.URI })
	keep("resourceTemplates", l.Result.ResourceTemplates, func(e entry) json.RawMessage { return e.URITemplate })
	return read, nil
}

func decode(text []byte, into any, anyCase bool) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if !anyCase {
		decoder.DontMatchCaseInsensitiveStructFields()
	}
	return decoder.Decode(into)
}

// describe says what a value is: a text in UTF-8, a number as it is spelled, null, or
// something else.
func describe(value json.RawMessage) string {
	switch c := value[0]; {
	case c == '"':
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			return "failure:" + err.Error()
		}
		return "text:" + hex.EncodeToString([]byte(text))
	case c == '-' || '0' <= c && c <= '9':
		return "number:" + string(value)
	case c == 'n':
		return "null"
	default:
		return "other"
	}
}
