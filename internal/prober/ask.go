package prober

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/text"
)

const (
	mcpPath = "/mcp" // of the adapter's client port

	maxBody    = 20 << 20 // of an answer to a request for a catalog
	maxHeader  = 64 << 10
	maxRefusal = 4 << 10 // of an answer without a catalog
	maxTag     = 256     // bytes of an ETag
	maxReason  = 64      // characters
	maxWords   = 1024

	maxFailures = 1 << 20 // that an adapter can report

	// inFlight bounds what answers may take together while they are worked on, and
	// decodeCost is what one takes, in multiples of its size: as it came, its parts,
	// and the catalog that is made of them.
	inFlight   = 64 << 20
	decodeCost = 3
	// smallBody is what may be decoded at the same time as others. JSON can become
	// many times as large while it is decoded, so larger ones take turns, and no more
	// than maxWaiting of them hold a worker meanwhile.
	smallBody  = 128 << 10
	maxWaiting = 4

	// Connections that are kept for the next time. A thousand pods must not hold a
	// thousand sockets; that many cannot all be kept, and need not.
	maxIdle     = 128
	idleTimeout = 30 * time.Second
)

// verifyLimits bound what a verification takes from a server. It only asks whether
// the server answers; what it offers is in the adapter's catalog. So a list that is
// larger is no failure, and need not be read to its end.
var verifyLimits = mcpprobe.Limits{Pages: 4, ItemBytes: 64 << 10, ReplyBytes: 1 << 20, CatalogBytes: 1 << 20}

// asker asks instances over the network.
type asker struct {
	clientPort, adminPort int
	limits                mcpprobe.Limits
	http                  *http.Client
	budget                budget
	waiting               chan struct{} // one for each large answer that is complete
	turn                  sync.Mutex    // of who decodes one
}

func newAsker(options Options) *asker {
	transport := &http.Transport{
		Proxy:                  nil,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		DisableCompression:     true, // a small answer must not become a large one
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        idleTimeout,
		ResponseHeaderTimeout:  time.Minute, // the longest deadline there is
		MaxResponseHeaderBytes: maxHeader,
	}
	return &asker{
		clientPort: options.ClientPort, adminPort: options.AdminPort, limits: options.Limits,
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		budget:  budget{left: inFlight},
		waiting: make(chan struct{}, maxWaiting),
	}
}

func (a *asker) close() { a.http.CloseIdleConnections() }

func address(ip string, port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }

// verify opens a session through the client port and lists what there is, as any
// client would. A server that lists too much has answered.
func (a *asker) verify(ctx context.Context, i Instance) error {
	target := mcpprobe.HTTP("http://"+address(i.IP, a.clientPort)+mcpPath, nil).With(func(header http.Header) {
		_, proof := adapterapi.NewProof(i.Key, adapterapi.ProbeSubject(string(i.UID)), time.Now())
		header.Set(adapterapi.HeaderProbe, proof)
	})
	_, err := mcpprobe.Probe(ctx, target, mcpprobe.Options{Limits: verifyLimits})
	if e, ok := errors.AsType[*mcpprobe.Error](err); ok && e.Class == mcpprobe.TooLarge && strings.HasSuffix(e.Op, "/list") {
		return nil
	}
	return err
}

// question is what an adapter is asked.
type question struct {
	tag string // of what is known already
	// skim leaves the catalog unread, but for its digest: it changes too often.
	skim bool
}

// reply is what an adapter answered.
type reply struct {
	skimmed   bool // of the catalog there is only the digest
	unchanged bool // nothing but the sessions is new
	etag      string
	sessions  *adapterapi.Sessions // nil if it did not say
	processes adapterapi.Processes // zero if it did not say
	keys      *adapterapi.KeyUse   // nil if it did not say
	report    Report
	catalog   *Catalog                  // nil if there is none yet
	settings  *adapterapi.SettingsState // nil of an adapter that takes none
	access    *adapterapi.AccessState   // the same
	peers     *adapterapi.AccessState   // the same
}

// errNoRoom means that too much is being read already. It says nothing of the one who
// was asked.
var errNoRoom = errors.New("too many catalogs are being read at the moment")

// failure is an error of mcpprobe, so that both ports have the same classes.
func failure(class mcpprobe.Class, status int, detail string) error {
	return &mcpprobe.Error{Class: class, Op: "catalog", Status: status, Detail: detail}
}

// fetch asks the adapter what its server offers, unless that is what the tag names.
func (a *asker) fetch(ctx context.Context, i Instance, q question) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address(i.IP, a.adminPort)+adapterapi.PathCatalog, nil)
	if err != nil {
		return reply{}, failure(mcpprobe.Protocol, 0, "the pod has no address that can be asked")
	}
	proof, header := adapterapi.NewProof(i.Key, adapterapi.CatalogSubject(string(i.UID)), time.Now())
	request.Header.Set(adapterapi.HeaderProof, header)
	request.Header.Set(adapterapi.HeaderSessions, adapterapi.SessionsWithSpares)
	request.Header.Set(adapterapi.HeaderProcesses, "wanted")
	request.Header.Set(adapterapi.HeaderKeys, "wanted")
	request.Header.Set(adapterapi.HeaderPeers, strconv.FormatInt(i.Peers.Generation, 10)) // 0 renews none
	if q.tag != "" {
		request.Header.Set("If-None-Match", q.tag)
	}
	var seen contact
	response, err := a.http.Do(request.WithContext(seen.trace(ctx)))
	if err != nil {
		return reply{}, lost(ctx, err, seen.get())
	}
	defer func() { _ = response.Body.Close() }()
	answer := reply{skimmed: q.skim, etag: response.Header.Get("ETag"), sessions: sessionsOf(response.Header), processes: processesOf(response.Header), keys: keysOf(response.Header)}
	if len(answer.etag) > maxTag {
		answer.etag = ""
	}
	signed := func(body []byte) bool {
		return proof.Opens(response.Header.Get(adapterapi.HeaderAnswer), adapterapi.Answer{
			Status: response.StatusCode, ETag: response.Header.Get("ETag"), Sessions: response.Header.Get(adapterapi.HeaderSessions), Body: body,
			Processes: response.Header.Get(adapterapi.HeaderProcesses), Keys: response.Header.Get(adapterapi.HeaderKeys),
		})
	}
	switch status := response.StatusCode; {
	case status == http.StatusNotModified && q.tag != "":
		answer.unchanged = true
		if !signed(nil) {
			return reply{}, unsigned(status)
		}
		return answer, nil
	case status != http.StatusOK:
		body, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
		if err != nil || !signed(body) {
			return reply{}, unsigned(status)
		}
		return reply{}, failure(mcpprobe.Busy, status, "the adapter cannot answer at the moment")
	}
	if !a.hasRoom(response.ContentLength) {
		return reply{}, errNoRoom // without a transfer of an answer that does not fit
	}
	err = a.read(ctx, response.Body, signed, i.Stored, &answer)
	return answer, err
}

// unsigned is for an answer that does not carry the adapter's MAC. Any process of the pod
// can give one, so it says nothing of the server: the adapter was not reached.
func unsigned(status int) error {
	return failure(mcpprobe.Unreachable, status, "the answer does not carry the adapter's signature")
}

// isUnsigned says whether an answer came, and not from the adapter.
func isUnsigned(err error) bool {
	e, ok := errors.AsType[*mcpprobe.Error](err)
	return ok && e.Class == mcpprobe.Unreachable && e.Status != 0
}

// hasRoom says whether an answer of that many bytes, or of an unknown number if
// negative, could be taken in at the moment.
func (a *asker) hasRoom(bytes int64) bool {
	if bytes > smallBody && len(a.waiting) == cap(a.waiting) {
		return false
	}
	return a.budget.has(decodeCost * int(min(bytes, maxBody)))
}

// lost is for a request without an answer. Its words are the same every time: they
// have no port of this side in them.
func lost(ctx context.Context, err error, how how) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return failure(mcpprobe.Canceled, 0, "")
	case !how.reached:
		return &mcpprobe.Error{
			Class: mcpprobe.Unreachable, Op: "catalog", Detail: innermost(err),
			Unheard: errors.Is(err, syscall.ECONNRESET), // a reset can come before the transport knows of the connection
		}
	case ctx.Err() != nil || isTimeout(err):
		return failure(mcpprobe.Timeout, 0, "")
	default:
		return &mcpprobe.Error{
			Class: mcpprobe.Closed, Op: "catalog", Detail: "the adapter ended the connection before its answer",
			Unheard: how.fresh && !how.heard,
		}
	}
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

func innermost(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return text.Line(err.Error(), maxWords)
		}
		err = inner
	}
}

func sessionsOf(header http.Header) *adapterapi.Sessions {
	sessions, err := adapterapi.ParseSessions(header.Get(adapterapi.HeaderSessions))
	if err != nil {
		return nil
	}
	return &sessions
}

func processesOf(header http.Header) adapterapi.Processes {
	processes, err := adapterapi.ParseProcesses(header.Get(adapterapi.HeaderProcesses))
	if err != nil {
		return adapterapi.Processes{}
	}
	return processes
}

func keysOf(header http.Header) *adapterapi.KeyUse {
	use, err := adapterapi.ParseKeyUse(header.Get(adapterapi.HeaderKeys))
	if err != nil {
		return nil
	}
	return &use
}

// read takes the answer in. Nothing of the body is kept but what a Catalog has.
func (a *asker) read(ctx context.Context, body io.Reader, signed func(body []byte) bool, stored string, answer *reply) error {
	data, err := a.readAll(ctx, body)
	defer a.budget.give(decodeCost * cap(data))
	if err != nil {
		return err
	}
	if !signed(data) {
		return unsigned(http.StatusOK)
	}
	if len(data) > smallBody {
		select {
		case a.waiting <- struct{}{}:
			defer func() { <-a.waiting }()
		default:
			return errNoRoom
		}
		a.turn.Lock() // it takes as long as to decode some that are complete
		defer a.turn.Unlock()
	}
	return decode(data, a.limits, stored, answer)
}

// readAll reads a body. It returns a slice, also with an error, whose capacity is
// what was taken from the budget.
func (a *asker) readAll(ctx context.Context, body io.Reader) ([]byte, error) {
	var data []byte
	for {
		if len(data) == cap(data) {
			if len(data) > maxBody {
				return data, failure(mcpprobe.TooLarge, 0, fmt.Sprintf("the answer has more than %d bytes", maxBody))
			}
			size := min(max(2*cap(data), 16<<10), maxBody+1)
			if !a.budget.take(decodeCost * (size - cap(data))) {
				return data, errNoRoom
			}
			grown := make([]byte, len(data), size)
			copy(grown, data)
			data = grown
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case errors.Is(err, io.EOF):
			if len(data) > maxBody {
				return data, failure(mcpprobe.TooLarge, 0, fmt.Sprintf("the answer has more than %d bytes", maxBody))
			}
			return data, nil
		case err != nil:
			return data, lost(ctx, err, how{reached: true, heard: true})
		}
	}
}

// decode reads an adapter's report.
func decode(data []byte, limits mcpprobe.Limits, stored string, answer *reply) error {
	var report adapterapi.Report
	if err := json.Unmarshal(data, &report); err != nil {
		return failure(mcpprobe.Protocol, 0, "the answer is not that of an adapter")
	}
	answer.report = Report{
		Ready: report.Ready, Reason: text.Line(string(report.Reason), maxReason), Error: text.Block(report.Error, maxWords),
		Failures: min(max(report.Failures, 0), maxFailures),
	}
	answer.settings, answer.access, answer.peers = report.Settings, report.Access, report.Peers
	var err error
	switch {
	case len(report.Catalog) == 0 || string(report.Catalog) == "null":
		answer.skimmed = false
	case answer.skimmed:
		answer.catalog = skim(report.Catalog)
	default:
		answer.catalog, err = decodeCatalog(report.Catalog, limits, stored)
	}
	if err != nil {
		return err
	}
	if report.Reason == adapterapi.TooLarge {
		if answer.catalog == nil {
			answer.catalog = &Catalog{}
		}
		answer.catalog.Summary.TooLarge = text.Block(report.Error, maxWords)
		if answer.catalog.Summary.TooLarge == "" {
			answer.catalog.Summary.TooLarge = "the server lists more than is taken from it"
		}
	}
	return nil
}

func decodeCatalog(data []byte, limits mcpprobe.Limits, stored string) (*Catalog, error) {
	catalog, err := mcpprobe.DecodeCatalog(data, limits)
	if err != nil {
		return nil, failure(mcpprobe.Protocol, 0, text.Line(err.Error(), maxWords))
	}
	summary := &Catalog{Summary: summarize(catalog)}
	if catalog.Digest != stored {
		summary.Stored = store(catalog)
	}
	return summary, nil
}

// skim reads the digest, as the adapter gives it.
func skim(data []byte) *Catalog {
	var catalog struct {
		Digest string `json:"digest"`
	}
	_ = json.Unmarshal(data, &catalog) // without a digest it is one more that changed
	return &Catalog{Summary: Summary{Catalog: mcpv1alpha1.Catalog{Digest: text.Line(catalog.Digest, maxVersion)}}}
}
