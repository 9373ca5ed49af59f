package roster

// Next returns a channel that closes when another list comes.
func (r *Roster) Next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = make(chan struct{})
	}
	return r.next
}

func (r *Roster) announceLocked() {
	if r.next != nil {
		close(r.next)
		r.next = nil
	}
}
