; The window against replays: `is_old`, `is_marked`, `advance` of core/esp/src/replay.rs (RFC 4303 3.4.3, RFC 6479), as a ring of 129 words
; of 64 bits. Numbers are integers from 0 to 2^64 - 1: the code subtracts what is less from what is more and adds 1 to a word's number, so
; that nothing wraps. Of the words it says which bits are set: (ring w b) is bit b of word w.
(set-logic ALL)
(define-fun limit () Int 18446744073709551616)
(define-fun window () Int 8192)
(define-fun words () Int 129)
(define-fun index ((word Int)) Int (mod word words))
; A window before any packet.
(define-fun top-first () Int 0)
(define-fun bit-first () Bool false)
(define-fun is-old ((top Int) (number Int)) Bool (and (>= top number) (>= (- top number) window)))
; `marked` is the number's own bit.
(define-fun is-marked ((top Int) (number Int) (marked Bool)) Bool (and (<= number top) marked))
(define-fun accepts ((top Int) (number Int) (marked Bool)) Bool
  (not (or (= number 0) (is-old top number) (is-marked top number marked))))
(define-fun top-after ((top Int) (number Int)) Int (ite (> number top) number top))
; The loop clears as many words behind the top's as the number is words ahead, and at most the ring.
(define-fun steps ((top Int) (number Int)) Int
  (ite (< (- (div number 64) (div top 64)) words) (- (div number 64) (div top 64)) words))
(define-fun cleared-at ((top Int) (step Int)) Int (index (+ (div top 64) 1 step)))
; Which words those are, without a loop: so many from the first on, round the ring.
(define-fun is-cleared ((top Int) (number Int) (w Int)) Bool
  (and (> number top) (< (mod (- w (+ (div top 64) 1)) words) (steps top number))))
(define-fun bit-after ((top Int) (number Int) (w Int) (b Int) (before Bool)) Bool
  (or (and before (not (is-cleared top number w)))
      (and (= w (index (div number 64))) (= b (mod number 64)))))

; What holds of each number n while the ring says what was accepted: `accepted` says it of n alone, without forgetting.
(declare-fun ring (Int Int) Bool)
(declare-fun accepted (Int) Bool)
(declare-const top Int)
(declare-const number Int)
(declare-const n Int)
(define-fun bit ((of Int)) Bool (ring (index (div of 64)) (mod of 64)))
(define-fun says-so ((top Int) (n Int) (accepted Bool) (bit Bool)) Bool
  (and
    (=> (> n top) (not accepted))
    (=> (and (>= n 1) (<= n top) (< (- top n) 8192)) (= accepted bit))
    ; Of the top's own word nothing is set ahead of it: it is not cleared again.
    (=> (and (> n top) (= (div n 64) (div top 64))) (not bit))))
(define-fun is-number ((n Int)) Bool (and (<= 0 n) (< n limit)))
(define-fun new-bit ((of Int)) Bool (bit-after top number (index (div of 64)) (mod of 64) (bit of)))

;; property: a window before any packet says what was accepted: nothing
;; broken by: (define-fun bit-first () Bool false) ~> (define-fun bit-first () Bool true)
(assert (is-number n))
(assert (not (says-so top-first n false bit-first)))

;; property: a window that says what was accepted still says it when one more number is
;; broken by: (define-fun words () Int 129) ~> (define-fun words () Int 128)
;; broken by: (and before (not (is-cleared top number w))) ~> before
;; broken by: (and (= w (index (div number 64))) (= b (mod number 64))) ~> false
;; broken by: (= b (mod number 64)) ~> (= b (mod number 32))
;; broken by: (ite (< (- (div number 64) (div top 64)) words) (- (div number 64) (div top 64)) words) ~> (- (div number 64) (div top 64) 1)
;; broken by: (< (mod (- w (+ (div top 64) 1)) words) (steps top number)) ~> (< (mod (- w (div top 64)) words) (steps top number))
(assert (and (is-number top) (is-number number) (is-number n)))
(assert (and (says-so top n (accepted n) (bit n)) (says-so top number (accepted number) (bit number))))
(assert (accepts top number (bit number)))
(assert (not (says-so (top-after top number) n (or (accepted n) (= n number)) (new-bit n))))

;; property: no number is accepted twice
;; broken by: (and (>= top number) (>= (- top number) window)) ~> (and (>= top number) (> (- top number) window))
;; broken by: (<= number top) marked ~> (< number top) marked
(assert (and (is-number top) (is-number number) (says-so top number (accepted number) (bit number))))
(assert (and (accepted number) (accepts top number (bit number))))

;; property: what is within the window or ahead of it, and new, is accepted, but for 0
;; broken by: (and (>= top number) (>= (- top number) window)) ~> (and (>= top number) (>= (- top number) 8191))
;; broken by: (= number 0) ~> (<= number 1)
(assert (and (is-number top) (is-number number) (says-so top number (accepted number) (bit number))))
(assert (and (>= number 1) (> (+ number 8192) top) (not (accepted number))))
(assert (not (accepts top number (bit number))))

;; property: 0 is never accepted, nor is what has become old
;; broken by: (or (= number 0) (is-old top number) (is-marked top number marked)) ~> (or (is-old top number) (is-marked top number marked))
;; broken by: (define-fun window () Int 8192) ~> (define-fun window () Int 8256)
(assert (and (is-number top) (is-number number) (accepts top number (bit number))))
(assert (or (= number 0) (<= (+ number 8192) top)))

;; property: the highest number never goes back, and is the highest that was accepted
;; broken by: (ite (> number top) number top) ~> number
(assert (and (is-number top) (is-number number)))
(assert (not (and (>= (top-after top number) top) (>= (top-after top number) number)
  (or (= (top-after top number) top) (= (top-after top number) number)))))

;; property: the loop clears the words that the model says without one
;; broken by: (mod (- w (+ (div top 64) 1)) words) ~> (mod (- w (+ (div top 64) 2)) words)
;; too much with: (index (+ (div top 64) 1 step)) ~> (index (+ (div top 64) step))
(declare-const w Int)
(declare-const step Int)
(assert (and (is-number top) (is-number number) (> number top) (<= 0 w) (< w words)))
(assert (or
  (and (<= 0 step) (< step (steps top number)) (= w (cleared-at top step)) (not (is-cleared top number w)))
  (and (= step (mod (- w (+ (div top 64) 1)) words)) (is-cleared top number w)
    (not (and (< step (steps top number)) (= w (cleared-at top step)))))))
