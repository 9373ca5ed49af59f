package rpc

import "bytes"

// Kind is what a message is.
type Kind uint8

// The kinds of messages.
const (
	Request Kind = iota + 1
	Notification
	Response // with a result or an error
)

// Span is a range of bytes of a message. The zero Span means that it is absent.
type Span struct{ Start, End int }

// Present says whether the range is there.
func (s Span) Present() bool { return s.End > s.Start }

// Of returns the range's bytes in the message it was found in.
func (s Span) Of(message []byte) []byte { return message[s.Start:s.End] }

// IsObject says whether the range is an object of the message it was found in.
func (s Span) IsObject(message []byte) bool { return s.Present() && message[s.Start] == '{' }

// Whole is the range of all of a text.
func Whole(text []byte) Span { return Span{End: len(text)} }

// Envelope is what the bridge needs to know of a message. Spans hold JSON as it
// stands in the message, so a string has its quotes. Byte slices hold decoded
// strings; they alias the message unless it had escapes there.
type Envelope struct {
	Kind Kind
	// Succeeds says that the result has no member isError that is true. Scan sees that on
	// its way, and results are too large for another pass. Without it, ErrorType looks.
	Succeeds bool

	ID     Span // absent in notifications, and in errors that name no request
	Method []byte
	Params Span
	Result Span
	Error  Span

	// ProgressToken is params.progressToken of a notification and
	// params._meta.progressToken of a request.
	ProgressToken Span

	// From params, whatever the method.
	Name             []byte // of a tool or prompt
	URI              []byte // of a resource
	RequestID        Span   // the request that notifications/cancelled is about
	RequestedVersion []byte // protocolVersion of initialize

	// From params._meta.
	Meta            Span   // all of it
	ProtocolVersion []byte // io.modelcontextprotocol/protocolVersion
	SubscriptionID  Span   // io.modelcontextprotocol/subscriptionId
}

// The members that are looked at, by the object they stand in.
const (
	topVersion = iota
	topID
	topMethod
	topParams
	topResult
	topError
)

const (
	paramsMeta = iota
	paramsProgressToken
	paramsName
	paramsURI
	paramsRequestID
	paramsVersion
)

const (
	metaProgressToken = iota
	metaVersion
	metaSubscriptionID
)

var (
	topNames = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	// Scan does not return the last two. It refuses odd spellings of them, because the
	// adapter decides by them to whom a state or a task belongs.
	paramsNames = []string{"_meta", "progressToken", "name", "uri", "requestId", "protocolVersion", "requestState", "taskId"}
	metaNames   = []string{
		"progressToken",
		MetaProtocolVersion,
		MetaSubscriptionID,
	}
)

// Scan reads the envelope of one message and checks the syntax of all of it. Line
// breaks between tokens are overwritten with blanks, in place; nothing else changes.
// It does not allocate unless it fails or a string that it decodes has escapes.
//
// Members that decide where a message goes must be spelled exactly, once and
// without escapes, and their texts must not have half of a surrogate pair: parsers
// differ in what they make of anything else.
//
// The error is always an *Error.
func Scan(message []byte) (Envelope, error) {
	s := scanner{syntax: syntax{b: message}}
	if err := s.message(); err != nil {
		return Envelope{}, err
	}
	return s.envelope, nil
}

// ScanLenient is Scan for what servers write, where some of them write null for a
// member that they do not have: params, params._meta, or the one of result and error
// that does not apply.
func ScanLenient(message []byte) (Envelope, error) {
	s := scanner{syntax: syntax{b: message}, lenient: true}
	if err := s.message(); err != nil {
		return Envelope{}, err
	}
	return s.envelope, nil
}

// IsBatch says whether the first byte that counts opens an array.
func IsBatch(body []byte) bool {
	return firstOf(body, " \t\r\n") == '['
}

// Batch calls each for every element of an array of messages, with its bytes. It
// checks the array's own syntax; each must Scan the elements.
func Batch(body []byte, each func(message []byte) error) error {
	s := syntax{b: body}
	s.space()
	if s.peek() != '[' {
		return invalid(s.i, "a batch must be an array")
	}
	s.i++
	s.space()
	if s.peek() == ']' {
		return invalid(s.i, "a batch must not be empty")
	}
	for {
		element, err := s.value()
		if err != nil {
			return err
		}
		if err := each(element.Of(body)); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.i++
			s.space()
		case ']':
			s.i++
			if err := s.end(); err != nil {
				return err
			}
			return nil
		default:
			return syntaxError(s.i, "want a comma or a closing bracket")
		}
	}
}

// scanner walks the three objects that an envelope is spread over: the message,
// its params and their _meta.
type scanner struct {
	syntax
	lenient    bool // null is the same as absent
	envelope   Envelope
	version    Span
	paramToken Span
	metaToken  Span
}

func (s *scanner) message() *Error {
	s.space()
	if s.peek() != '{' {
		if _, err := s.value(); err != nil {
			return err
		}
		return invalid(0, "a message must be an object")
	}
	if err := s.top(); err != nil {
		return err
	}
	if err := s.end(); err != nil {
		return err
	}
	return s.classify()
}

func (s *syntax) end() *Error {
	s.space()
	if s.i != len(s.b) {
		return syntaxError(s.i, "more than one value")
	}
	return nil
}

func (s *scanner) top() *Error {
	p := picker{names: topNames}
	for {
		key, more, err := p.next(&s.syntax)
		if err != nil || !more {
			return err
		}
		if key == topParams && s.peek() == '{' {
			start := s.i
			if err := s.params(); err != nil {
				return err
			}
			s.envelope.Params = Span{start, s.i}
			continue
		}
		if key == topResult && s.peek() == '{' {
			if err := s.result(); err != nil {
				return err
			}
			continue
		}
		value, err := s.valueOf(key)
		if err != nil {
			return err
		}
		if err := s.keepTop(key, value); err != nil {
			return err
		}
	}
}

func (s *scanner) keepTop(key int, value Span) *Error {
	switch key {
	case topVersion:
		s.version = value
	case topID:
		s.envelope.ID = value
	case topMethod:
		s.envelope.Method = Text(s.b, value)
		if len(s.envelope.Method) == 0 {
			return invalid(value.Start, "method must be a string and not empty")
		}
	case topParams:
		if s.absent(value) {
			return nil
		}
		return invalid(value.Start, "params must be an object")
	case topResult:
		s.envelope.Result = value
	case topError:
		s.envelope.Error = value
	}
	return nil
}

// result reads a result. Names that parsers disagree on are a matter between client and
// server here.
func (s *scanner) result() *Error {
	start := s.i
	s.outer++
	s.envelope.Succeeds = true
	var p picker
	for {
		name, _, more, err := p.name(&s.syntax)
		if err == nil && more {
			err = s.colon()
		}
		if err != nil {
			return err
		}
		if !more {
			s.outer--
			s.envelope.Result = Span{start, s.i}
			return nil
		}
		value, err := s.value()
		if err != nil {
			return err
		}
		if string(name) == nameIsError && string(value.Of(s.b)) == "true" {
			s.envelope.Succeeds = false
		}
	}
}

func (s *scanner) params() *Error {
	p := picker{names: paramsNames}
	for {
		key, more, err := p.next(&s.syntax)
		if err != nil || !more {
			return err
		}
		if key == paramsMeta && s.peek() == '{' {
			start := s.i
			if err := s.meta(); err != nil {
				return err
			}
			s.envelope.Meta = Span{start, s.i}
			continue
		}
		value, err := s.valueOf(key)
		if err != nil {
			return err
		}
		if err := s.keepParam(key, value); err != nil {
			return err
		}
	}
}

func (s *scanner) keepParam(key int, value Span) *Error {
	switch key {
	case paramsMeta:
		if s.absent(value) {
			return nil
		}
		return invalid(value.Start, "params._meta must be an object")
	case paramsProgressToken:
		s.paramToken = value
	case paramsName:
		s.envelope.Name = Text(s.b, value)
	case paramsURI:
		s.envelope.URI = Text(s.b, value)
	case paramsRequestID:
		s.envelope.RequestID = value
	case paramsVersion:
		s.envelope.RequestedVersion = Text(s.b, value)
	}
	return nil
}

func (s *scanner) meta() *Error {
	p := picker{names: metaNames}
	for {
		key, more, err := p.next(&s.syntax)
		if err != nil || !more {
			return err
		}
		value, err := s.valueOf(key)
		if err != nil {
			return err
		}
		switch key {
		case metaProgressToken:
			s.metaToken = value
		case metaVersion:
			s.envelope.ProtocolVersion = Text(s.b, value)
		case metaSubscriptionID:
			s.envelope.SubscriptionID = value
		}
	}
}

// valueOf checks the value of a member. Half of a surrogate pair is a character of its own
// to some parsers, and U+FFFD to others, so the text of a known member has none; anywhere
// else it is a matter between client and server.
func (s *scanner) valueOf(key int) (Span, *Error) {
	value, err := s.value()
	if err != nil || key < 0 {
		return value, err
	}
	raw := value.Of(s.b)
	if len(raw) > decodedBytes && raw[0] == '"' && bytes.IndexByte(raw, '\\') >= 0 {
		return Span{}, invalid(value.Start, "a text with escapes that is too long")
	}
	if hasLoneSurrogate(raw) {
		return Span{}, invalid(value.Start, "half of a surrogate pair, which parsers read differently")
	}
	return value, nil
}

// absent says whether a value stands for none at all.
func (s *scanner) absent(value Span) bool { return s.lenient && string(value.Of(s.b)) == "null" }
