package adapterapi

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
	"time"
)

// Window is how far the clocks of manager and adapter may be apart, and for how long a
// proof that was seen on the network can be shown again.
const Window = 30 * time.Second

// Subject is what a proof is for: one kind of request to one pod.
type Subject struct {
	Use    Use
	PodUID string // as Kubernetes writes it
	Method string // of HTTP
	Path   string
}

// CatalogSubject is a request for the catalog.
func CatalogSubject(podUID string) Subject {
	return Subject{Use: UseCatalog, PodUID: podUID, Method: "GET", Path: PathCatalog}
}

// ProbeSubject is any request of the manager's probe to the client port.
func ProbeSubject(podUID string) Subject { return Subject{Use: UseProbe, PodUID: podUID} }

// nonceSize is enough that no two proofs have the same nonce.
const nonceSize = 16

var encoding = base64.RawURLEncoding

// Proof is a request's proof that was made or verified, and what its answer is bound to.
type Proof struct {
	key   []byte // derived
	nonce string
}

// NewProof proves the holder of the key. The header is what the request carries.
func NewProof(key Key, subject Subject, now time.Time) (proof Proof, header string) {
	return prove(key.Derive(subject.Use), subject, now)
}

func prove(derived []byte, subject Subject, now time.Time) (proof Proof, header string) {
	var nonce [nonceSize]byte
	_, _ = rand.Read(nonce[:]) // never fails
	proof = Proof{key: derived, nonce: encoding.EncodeToString(nonce[:])}
	at := strconv.FormatInt(now.Unix(), 10)
	return proof, at + "." + proof.nonce + "." + encoding.EncodeToString(proof.request(subject, at))
}

// Verify says whether a header proves the holder of one of the keys. How long it takes
// says nothing of the keys.
func (r Keyring) Verify(header string, subject Subject, now time.Time) (Proof, bool) {
	at, rest, _ := strings.Cut(header, ".")
	nonce, mac, _ := strings.Cut(rest, ".")
	seconds, err := strconv.ParseInt(at, 10, 64)
	presented, macErr := encoding.Strict().DecodeString(mac)
	if err != nil || macErr != nil || len(nonce) != encoding.EncodedLen(nonceSize) || len(presented) != sha256.Size {
		return Proof{}, false
	}
	if distance := now.Sub(time.Unix(seconds, 0)); distance > Window || distance < -Window {
		return Proof{}, false
	}
	for _, key := range r.All() {
		proof := Proof{key: key.Derive(subject.Use), nonce: nonce}
		if hmac.Equal(presented, proof.request(subject, at)) {
			return proof, true
		}
	}
	return Proof{}, false
}

func (p Proof) request(subject Subject, at string) []byte {
	return p.mac("request", []byte(at), []byte(p.nonce), []byte(subject.PodUID), []byte(subject.Method), []byte(subject.Path))
}

// SealBody is the header that the request's body is proved by.
func (p Proof) SealBody(body []byte) string { return encoding.EncodeToString(p.body(body)) }

// OpensBody says whether the header is that of the request's body, sent by who made the
// proof.
func (p Proof) OpensBody(header string, body []byte) bool {
	presented, err := encoding.Strict().DecodeString(header)
	return err == nil && hmac.Equal(presented, p.body(body))
}

func (p Proof) body(body []byte) []byte { return p.mac("body", []byte(p.nonce), body) }

// Answer is what an adapter says: all that the manager acts on.
type Answer struct {
	Status    int
	ETag      string
	Sessions  string
	Body      []byte
	Processes string // empty from an adapter that was not asked, or does not know them
	Keys      string // the same
}

// Seal is the header that an answer to the request carries.
func (p Proof) Seal(answer Answer) string { return encoding.EncodeToString(p.answer(answer)) }

// Opens says whether the header is that of the answer to this request, given by a holder
// of the key.
func (p Proof) Opens(header string, answer Answer) bool {
	presented, err := encoding.Strict().DecodeString(header)
	return err == nil && hmac.Equal(presented, p.answer(answer))
}

func (p Proof) answer(answer Answer) []byte {
	parts := [][]byte{[]byte(p.nonce), []byte(strconv.Itoa(answer.Status)), []byte(answer.ETag), []byte(answer.Sessions), answer.Body}
	if answer.Processes != "" || answer.Keys != "" { // without them it is the MAC of adapters that do not know them
		parts = append(parts, []byte(answer.Processes))
	}
	if answer.Keys != "" {
		parts = append(parts, []byte(answer.Keys))
	}
	return p.mac("answer", parts...)
}

// mac is over parts with their lengths, so that no two lists of parts have the same.
func (p Proof) mac(purpose string, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, p.key)
	length := make([]byte, 8)
	for _, part := range append([][]byte{[]byte(purpose)}, parts...) {
		binary.BigEndian.PutUint64(length, uint64(len(part)))
		_, _ = mac.Write(length) // never fails
		_, _ = mac.Write(part)
	}
	return mac.Sum(nil)
}
