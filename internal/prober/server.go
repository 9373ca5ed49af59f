package prober

import (
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// server is a server and its instances. All of it belongs to the Prober's lock.
type server struct {
	name      types.NamespacedName
	instances map[types.UID]*instance
	running   int         // instances that are being asked
	parked    []*instance // those that wait because too many are

	pods     []adapterapi.PeerPod // of the list, in the order of their UIDs; nil before the first one
	peers    adapterapi.Document  // the list
	listedAt time.Time            // when it was made
	gone     departures           // pods that lists name as gone
	crowded  bool                 // a list had no room for all pods, and the prober has reported it

	counts counts    // as they were when Notify was last called
	words  bool      // some have changed since
	quiet  time.Time // until then Notify is not called for what changes all the time
	timer  *time.Timer
}

// counts are the sessions of all instances, the clients that were refused one, and the processes
// that crashed or could not be started.
type counts struct {
	open    int64
	refused uint64
	failed  int64
}

func (s *server) sum() (sum counts) {
	for _, i := range s.instances {
		sum.open += i.result.Sessions.Open
		sum.refused += i.result.Sessions.Refused
		sum.failed += i.result.Processes.Failed()
	}
	return sum
}

// keptUnstored is how many different catalogs of one server are kept that the
// cluster does not have.
const keptUnstored = 4

// intern returns the catalog that instances of the server share. Results that were
// handed out keep theirs.
func (s *server) intern(catalog *Catalog) *Catalog {
	others := map[string]bool{} // that the cluster does not have
	for have := range s.catalogs() {
		switch {
		case have.Stored == nil:
		case have.Summary.Catalog.Digest != catalog.Summary.Catalog.Digest:
			others[have.Summary.Catalog.Digest] = true
		default:
			catalog = &Catalog{Summary: catalog.Summary, Stored: have.Stored}
		}
	}
	if catalog.Stored != nil && len(others) >= keptUnstored {
		catalog = &Catalog{Summary: catalog.Summary}
	}
	for have := range s.catalogs() {
		if have.Summary.Catalog.Digest == catalog.Summary.Catalog.Digest && have.Summary.TooLarge == catalog.Summary.TooLarge &&
			(have.Stored == nil) == (catalog.Stored == nil) {
			return have
		}
	}
	return catalog
}

// catalogs are those of all instances.
func (s *server) catalogs() iter.Seq[*Catalog] {
	return func(yield func(*Catalog) bool) {
		for _, i := range s.instances {
			if i.result.Catalog != nil && !yield(i.result.Catalog) {
				return
			}
		}
	}
}

// forgetStored drops what the cluster has, for all instances at once.
func (s *server) forgetStored() {
	dropped := map[*Catalog]*Catalog{}
	for _, i := range s.instances {
		have := i.result.Catalog
		if have == nil || have.Stored == nil || have.Summary.Catalog.Digest != i.Stored {
			continue
		}
		if dropped[have] == nil {
			dropped[have] = &Catalog{Summary: have.Summary}
		}
		i.result.Catalog = dropped[have]
	}
}
