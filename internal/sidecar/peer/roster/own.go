package roster

// Ending is what the manager says about the end of a pod.
type Ending struct {
	// Seconds are how long the pod has for its drain, from the beginning of the drain; 0 if the manager knows of no
	// limit but the pod's own.
	Seconds int64
	// Closing says that all pods of the server end.
	Closing bool
}

// Ending returns what the last list says about the end of a pod, which is nothing if the list does not have the pod. The
// lease of the list is of no importance: no pod that was deleted comes back, whether its manager lives or not.
func (r *Roster) Ending(pod [16]byte) Ending {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.pods[pod]
	return Ending{Seconds: own.DrainSeconds, Closing: own.Closing}
}
