package load

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

const revision = "2025-11-25"

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + revision +
	`","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// Call is a call of one of the echo server's tools, and what has to come back.
type Call struct {
	ID   int
	Tool string
	// Arguments is JSON without its braces.
	Arguments []byte
	// Token asks for progress, if it is not zero.
	Token int
	// Text is what the result has to say.
	Text []byte
}

func (c *Call) append(to []byte) []byte {
	to = append(to, `{"jsonrpc":"2.0","id":`...)
	to = strconv.AppendInt(to, int64(c.ID), 10)
	to = append(to, `,"method":"tools/call","params":{"name":"`...)
	to = append(to, c.Tool...)
	to = append(to, '"')
	if c.Token != 0 {
		to = append(to, `,"_meta":{"progressToken":`...)
		to = strconv.AppendInt(to, int64(c.Token), 10)
		to = append(to, '}')
	}
	to = append(to, `,"arguments":{`...)
	to = append(to, c.Arguments...)
	return append(to, `}}}`...)
}

// near is how far from either end of a message its members may stand that we look for:
// payloads are large, and we are not to be what is measured.
const near = 80

// verify says whether an answer is the call's. It compares bytes: our payloads need no
// escapes, and no bridge that we know spells an id in another way or with blanks.
func (c *Call) verify(answer []byte) error {
	id := strconv.AppendInt([]byte(`"id":`), int64(c.ID), 10)
	if !holds(answer[:min(len(answer), near)], id) && !holds(answer[max(0, len(answer)-near):], id) {
		return fmt.Errorf("call %d is answered by %.300q", c.ID, answer)
	}
	_, text, ok := bytes.Cut(answer, []byte(`"text":"`))
	if !ok {
		return fmt.Errorf("call %d is answered without a text: %.300q", c.ID, answer)
	}
	if !bytes.HasPrefix(text, c.Text) || len(text) <= len(c.Text) || text[len(c.Text)] != '"' {
		return fmt.Errorf("call %d is answered with another text: %.300q", c.ID, answer)
	}
	return nil
}

// holds says whether there is a member whose number ends where the needle ends.
func holds(text, needle []byte) bool {
	at := bytes.Index(text, needle)
	if at < 0 || at+len(needle) >= len(text) {
		return false
	}
	next := text[at+len(needle)]
	return next == ',' || next == '}'
}

// isAnswer tells answers from what else comes on a stream.
func isAnswer(message []byte) bool {
	return !bytes.Contains(message[:min(len(message), near)], []byte(`"method":"`))
}

var errNoProgress = errors.New("not a progress notification")

// Progress reads what a progress notification says.
func Progress(message []byte) (token, number int, err error) {
	if token, err = member(message, `"progressToken":`); err != nil {
		return 0, 0, err
	}
	number, err = member(message, `"progress":`)
	return token, number, err
}

func member(message []byte, name string) (int, error) {
	at := bytes.Index(message, []byte(name))
	if at < 0 {
		return 0, fmt.Errorf("read %.300q: %w", message, errNoProgress)
	}
	digits := message[at+len(name):]
	end := 0
	for end < len(digits) && digits[end] >= '0' && digits[end] <= '9' {
		end++
	}
	number, err := strconv.Atoi(string(digits[:end]))
	if err != nil {
		return 0, fmt.Errorf("read %.300q: %w", message, errNoProgress)
	}
	return number, nil
}
