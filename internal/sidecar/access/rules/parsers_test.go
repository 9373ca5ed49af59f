package rules

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"
)

// reading is what a parser reads out of an answer: of each entry, named by its list and index, what it is
// known by. An entry whose name is no string has none.
type reading map[string]string

// parser is something that clients read lists with.
type parser struct {
	name string
	read func(answer []byte) (reading, error)
}

// parsers are all that can run here. The programs are those that internal/rpc asks about messages.
func parsers(tb testing.TB) []parser {
	tb.Helper()
	programs := filepath.Join("..", "..", "..", "rpc", "testdata")
	all := []parser{{"encoding/json", readWithStandardLibrary}}

	segmentio := filepath.Join(tb.TempDir(), "segmentio")
	build := exec.CommandContext(tb.Context(), "go", "build", "-o", segmentio, ".")
	build.Dir = filepath.Join(programs, "segmentio")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build the parser of segmentio: %v\n%s", err, out)
	}
	ask := startParser(tb, segmentio)
	all = append(all,
		parser{"segmentio/encoding", func(answer []byte) (reading, error) { return ask("I", answer) }},
		parser{"segmentio/encoding with exact names", func(answer []byte) (reading, error) { return ask("C", answer) }},
	)

	node, err := exec.LookPath("node")
	if err != nil {
		tb.Logf("JSON.parse is not compared: %v", err)
		return all
	}
	askNode := startParser(tb, node, filepath.Join(programs, "parse.js"), "lists")
	return append(all, parser{"JSON.parse", func(answer []byte) (reading, error) { return askNode("", answer) }})
}

// startParser starts a process that says what it reads, for as long as the test runs. What is asked begins
// with a word for the process.
func startParser(tb testing.TB, program string, args ...string) func(word string, answer []byte) (reading, error) {
	tb.Helper()
	command := exec.Command(program, args...)
	var said strings.Builder
	command.Stderr = &said
	in, err := command.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := command.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(in.Close(), command.Wait()); err != nil {
			tb.Errorf("%s ends with %v: %s", program, err, said.String())
		}
	})
	return func(word string, answer []byte) (reading, error) {
		question := binary.BigEndian.AppendUint32(nil, uint32(len(word)+len(answer)))
		if _, err := in.Write(append(append(question, word...), answer...)); err != nil {
			return nil, err
		}
		var size [4]byte
		if _, err := io.ReadFull(out, size[:]); err != nil {
			return nil, err
		}
		said := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(out, said); err != nil {
			return nil, err
		}
		return readSaid(said)
	}
}

func readSaid(said []byte) (reading, error) {
	var described map[string]string
	if err := json.Unmarshal(said, &described); err != nil {
		return nil, err
	}
	if failure, ok := described["failure"]; ok {
		return nil, errors.New(failure)
	}
	read := reading{}
	for entry, value := range described {
		code, text, _ := strings.Cut(value, ":")
		if code != "text" && code != "utf16" {
			continue
		}
		decoded, err := hex.DecodeString(text)
		if err != nil {
			return nil, err
		}
		if code == "utf16" {
			units := make([]uint16, len(decoded)/2)
			for i := range units {
				units[i] = binary.BigEndian.Uint16(decoded[2*i:])
			}
			decoded = []byte(string(utf16.Decode(units)))
		}
		read[entry] = string(decoded)
	}
	return read, nil
}

// readWithStandardLibrary reads as many clients in Go do, which ignores case.
func readWithStandardLibrary(answer []byte) (reading, error) {
	var m struct {
		Result struct {
			Tools             []json.RawMessage `json:"tools"`
			Prompts           []json.RawMessage `json:"prompts"`
			Resources         []json.RawMessage `json:"resources"`
			ResourceTemplates []json.RawMessage `json:"resourceTemplates"`
		} `json:"result"`
	}
	if err := json.Unmarshal(answer, &m); err != nil {
		return nil, err
	}
	read := reading{}
	for list, entries := range map[string][]json.RawMessage{
		"tools": m.Result.Tools, "prompts": m.Result.Prompts, "resources": m.Result.Resources, "resourceTemplates": m.Result.ResourceTemplates,
	} {
		for i, text := range entries {
			var entry struct {
				Name        any `json:"name"`
				URI         any `json:"uri"`
				URITemplate any `json:"uriTemplate"`
			}
			if err := json.Unmarshal(text, &entry); err != nil {
				continue
			}
			key := map[string]any{"tools": entry.Name, "prompts": entry.Name, "resources": entry.URI, "resourceTemplates": entry.URITemplate}[list]
			if name, ok := key.(string); ok {
				read[fmt.Sprintf("%s/%d", list, i)] = name
			}
		}
	}
	return read, nil
}
