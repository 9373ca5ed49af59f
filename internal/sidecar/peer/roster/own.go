package roster

// news tells that there is another list. The lock of the Roster guards it.
type news struct{ next chan struct{} }

func (n *news) await() <-chan struct{} {
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

func (n *news) tell() {
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// Ending is what the manager says about the end of a pod.
type Ending struct {
	// Seconds are how long the pod has for its drain, from the beginning of the drain; 0 if the manager knows of no
	// limit but the pod's own.
	Seconds int64
	// Closing says that all pods of the server end.
	Closing bool
}

// Ending returns what the last list says about the end of a pod, which is nothing if the list does not have the pod. The
// channel closes when there is another list. The lease of the list is of no importance: no pod that was deleted
// comes back, whether its manager lives or not.
func (r *Roster) Ending(pod [16]byte) (said Ending, another <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.pods[pod]
	return Ending{Seconds: own.DrainSeconds, Closing: own.Closing}, r.news.await()
}
