package launcher

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
)

const (
	protocolVersion = 1

	headerBytes = 4
	maxFrame    = 64 << 10
	maxLabel    = 64
	maxGrace    = 24 * 60 * 60 * 1000 // in milliseconds
	maxText     = 1 << 10             // of an error that crosses the socket
	maxHead     = 2 << 10             // of standard error in an exit, its beginning
	maxTail     = 4 << 10             // and its end; both are six times that in JSON at worst
)

type kind string

const (
	kindHello   kind = "hello"
	kindWelcome kind = "welcome"
	kindReject  kind = "reject"
	kindSpawn   kind = "spawn"
	kindRefused kind = "refused"
	kindFailed  kind = "failed"
	kindStop    kind = "stop"
	kindExit    kind = "exit"
	kindDrained kind = "drained"
	kindUsage   kind = "usage"
)

type role string

const (
	roleControl role = "control"
	roleProcess role = "process"
	roleDrain   role = "drain"
)

// message is every frame of the protocol; doc.go says which is sent when.
type message struct {
	Kind    kind   `json:"kind"`
	Version int    `json:"version,omitempty"`     // hello
	Role    role   `json:"role,omitempty"`        // hello
	Epoch   string `json:"epoch,omitempty"`       // hello of control and process
	ID      uint64 `json:"id,omitempty"`          // spawn, refused, failed, usage, hello of process
	PID     int    `json:"pid,omitempty"`         // hello of process
	Label   string `json:"label,omitempty"`       // spawn
	Grace   int64  `json:"graceMillis,omitempty"` // stop
	Reason  Reason `json:"reason,omitempty"`      // refused
	Text    string `json:"text,omitempty"`        // reject, refused, failed
	Exit    *ended `json:"exit,omitempty"`        // exit

	TellsUsage bool    `json:"tellsUsage,omitempty"` // hello of control: older launchers end the connection when asked
	Memory     *Memory `json:"memory,omitempty"`     // usage, as an answer
}

// Memory is what the container of the server uses, in bytes. File cache that the kernel can drop does
// not count. A limit of 0 is none.
type Memory struct {
	Used  uint64 `json:"used"`
	Limit uint64 `json:"limit,omitempty"`
}

// ended is an Exit in a frame.
type ended struct {
	Code   int    `json:"code"`
	Signal int    `json:"signal,omitempty"`
	OOM    bool   `json:"oom,omitempty"`
	Stderr string `json:"stderr,omitempty"`
	Head   string `json:"stderrHead,omitempty"` // older launchers do not send it, and older adapters ignore it
}

func (e *ended) exit() Exit {
	return Exit{
		Code:   min(max(e.Code, 0), 255),
		Signal: syscall.Signal(min(max(e.Signal, 0), 64)),
		OOM:    e.OOM,
		Stderr: ending(e.Stderr),

		StderrHead: beginning(e.Head),
	}
}

func newEnded(exit Exit) *ended {
	return &ended{
		Code:   exit.Code,
		Signal: int(exit.Signal),
		OOM:    exit.OOM,
		Stderr: strings.ToValidUTF8(exit.Stderr, "\uFFFD"),
		Head:   strings.ToValidUTF8(exit.StderrHead, "\uFFFD"),
	}
}

// failure returns the answer to a spawn request that has failed.
func failure(id uint64, err error) message {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return message{Kind: kindRefused, ID: id, Reason: refused.Reason, Text: brief(refused.Message)}
	}
	return message{Kind: kindFailed, ID: id, Text: brief(err.Error())}
}

// err returns the error that failure has put into a frame.
func (m *message) err() error {
	if m.Kind == kindRefused {
		return &RefusedError{Reason: m.Reason, Message: brief(m.Text)}
	}
	return &StartError{Message: brief(m.Text)}
}

func encodeFrame(m message) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.Kind, err)
	}
	if len(body) > maxFrame {
		return nil, fmt.Errorf("encode %s: %d bytes exceed a frame", m.Kind, len(body))
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, headerBytes+len(body)), uint32(len(body))) //nolint:gosec // bounded above
	return append(frame, body...), nil
}

// readBody reads the object that the header announces.
func readBody(r io.Reader, header [headerBytes]byte) (message, error) {
	size := binary.BigEndian.Uint32(header[:])
	if size == 0 || size > maxFrame {
		return message{}, fmt.Errorf("frame of %d bytes", size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return message{}, fmt.Errorf("read frame: %w", err)
	}
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		return message{}, fmt.Errorf("decode frame: %w", err)
	}
	return m, nil
}

// brief returns the beginning of a text from the other side, as valid UTF-8.
func brief(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// ending returns the end of standard error from the other side, as valid UTF-8.
func ending(text string) string {
	return strings.ToValidUTF8(text[max(len(text)-maxTail, 0):], "")
}

// beginning returns the beginning of standard error from the other side, as valid UTF-8.
func beginning(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxHead)], "")
}

// cleanLabel removes from a label what could break a log line.
func cleanLabel(label string) string {
	clean := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == ']' {
			return '_'
		}
		return r
	}, label)
	return clean[:min(len(clean), maxLabel)]
}
