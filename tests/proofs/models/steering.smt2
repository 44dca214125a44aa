; Which slot an SPI names: core/esp/src/steering.rs, Chaskey-12 (ISO/IEC 29192-6) over one word, in words of 32 bits as the code has them.
; A state is v3 v2 v1 v0, as one number of 128 bits whose lowest word is v0.
(set-logic ALL)
(define-sort Word () (_ BitVec 32))
(define-sort State () (_ BitVec 128))
(define-fun v0 ((s State)) Word ((_ extract 31 0) s))
(define-fun v1 ((s State)) Word ((_ extract 63 32) s))
(define-fun v2 ((s State)) Word ((_ extract 95 64) s))
(define-fun v3 ((s State)) Word ((_ extract 127 96) s))
(define-fun state ((a Word) (b Word) (c Word) (d Word)) State (concat d c b a))
; A round, in its four steps of one side after the other.
(define-fun step-1 ((s State)) State
  (state ((_ rotate_left 16) (bvadd (v0 s) (v1 s))) (bvxor ((_ rotate_left 5) (v1 s)) (bvadd (v0 s) (v1 s))) (v2 s) (v3 s)))
(define-fun step-2 ((s State)) State
  (state (v0 s) (v1 s) (bvadd (v2 s) (v3 s)) (bvxor ((_ rotate_left 8) (v3 s)) (bvadd (v2 s) (v3 s)))))
(define-fun step-3 ((s State)) State
  (state (bvadd (v0 s) (v3 s)) (v1 s) (v2 s) (bvxor ((_ rotate_left 13) (v3 s)) (bvadd (v0 s) (v3 s)))))
(define-fun step-4 ((s State)) State
  (state (v0 s) (bvxor ((_ rotate_left 7) (v1 s)) (bvadd (v2 s) (v1 s))) ((_ rotate_left 16) (bvadd (v2 s) (v1 s))) (v3 s)))
(define-fun round ((s State)) State (step-4 (step-3 (step-2 (step-1 s)))))
(define-fun rounds-4 ((s State)) State (round (round (round (round s)))))
(define-fun rounds ((s State)) State (rounds-4 (rounds-4 (rounds-4 s))))
; Multiplied by x in GF(2^128).
(define-fun carry ((k State)) State (ite (= ((_ extract 127 127) k) #b1) #x00000000000000000000000000000087 (_ bv0 128)))
(define-fun twice ((k State)) State (bvxor (bvshl k (_ bv1 128)) (carry k)))
(define-fun second ((key State)) State (twice (twice key)))
(define-fun first-state ((key State)) State (bvxor key (second key) (bvshl (_ bv1 128) (_ bv32 128))))
(define-fun with-spi ((s State) (spi Word)) State (bvxor s ((_ zero_extend 96) spi)))
(define-fun tag ((key State) (spi Word)) Word
  (bvxor (v0 (rounds (with-spi (first-state key) spi))) (v0 (second key))))
; The slot is counted in integers: a rest is below what it is divided by.
(define-fun most-slots () Int 4095)
(define-fun is-slots ((slots Int)) Bool (not (or (= slots 0) (> slots most-slots))))
(define-fun slot-of ((tag Int) (slots Int)) Int (+ (mod tag slots) 1))
(define-fun slot ((key State) (slots Int) (spi Word)) Int (slot-of (bv2nat (tag key spi)) slots))

(declare-const s State)
(declare-const other State)
(declare-const key State)
(declare-const spi Word)
(declare-const spi-b Word)
(declare-const some Int)
(declare-const slots Int)

;; property: a slot is one of those there are, 1 to 4,095 and no more than the slots, whatever the tag
;; broken by: (> slots most-slots) ~> (> slots 4096)
;; broken by: (+ (mod tag slots) 1) ~> (mod tag slots)
;; broken by: (+ (mod tag slots) 1) ~> (+ (mod tag slots) 2)
(assert (and (<= 0 some) (< some 4294967296) (<= 0 slots) (<= slots 65535) (is-slots slots)))
(assert (not (and (<= 1 (slot-of some slots)) (<= (slot-of some slots) slots) (<= (slot-of some slots) 4095))))

;; property: each slot there is has a tag that names it
;; broken by: (+ (mod tag slots) 1) ~> (+ (mod (- tag (mod tag 2)) slots) 1)
(declare-const wanted Int)
(assert (and (<= 0 slots) (is-slots slots) (<= 1 wanted) (<= wanted slots)))
(assert (not (= wanted (slot-of (- wanted 1) slots))))

;; property: a round loses nothing: from what it gives what it was given is had again, so that no two states become one
;; broken by: ((_ rotate_left 13) (v3 s)) ~> (bvshl (v3 s) #x0000000d)
;; broken by: (bvxor ((_ rotate_left 5) (v1 s)) (bvadd (v0 s) (v1 s))) ~> (bvadd (v0 s) (v1 s))
;; broken by: (state (v0 s) (v1 s) (bvadd (v2 s) (v3 s)) (bvxor ((_ rotate_left 8) (v3 s)) (bvadd (v2 s) (v3 s)))) ~> (state (v0 s) (v1 s) (v3 s) (bvxor ((_ rotate_left 8) (v3 s)) (bvadd (v2 s) (v3 s))))
(define-fun back-4 ((s State)) State
  (let ((sum ((_ rotate_right 16) (v2 s))))
    (let ((was ((_ rotate_right 7) (bvxor (v1 s) sum)))) (state (v0 s) was (bvsub sum was) (v3 s)))))
(define-fun back-3 ((s State)) State
  (let ((was ((_ rotate_right 13) (bvxor (v3 s) (v0 s))))) (state (bvsub (v0 s) was) (v1 s) (v2 s) was)))
(define-fun back-2 ((s State)) State
  (let ((was ((_ rotate_right 8) (bvxor (v3 s) (v2 s))))) (state (v0 s) (v1 s) (bvsub (v2 s) was) was)))
(define-fun back-1 ((s State)) State
  (let ((sum ((_ rotate_right 16) (v0 s))))
    (let ((was ((_ rotate_right 5) (bvxor (v1 s) sum)))) (state (bvsub sum was) was (v2 s) (v3 s)))))
(assert (not (and (= s (back-1 (step-1 s))) (= s (back-2 (step-2 s))) (= s (back-3 (step-3 s))) (= s (back-4 (step-4 s))))))

;; property: every octet of an SPI goes in: two SPIs are two states before the rounds
;; broken by: ((_ zero_extend 96) spi) ~> ((_ zero_extend 112) ((_ extract 15 0) spi))
(assert (not (= spi spi-b)))
(assert (= (with-spi (first-state key) spi) (with-spi (first-state key) spi-b)))

;; property: and two keys are two masks of the tag's whole: doubling loses nothing
;; broken by: (bvxor (bvshl k (_ bv1 128)) (carry k)) ~> (bvshl k (_ bv1 128))
;; broken by: #x00000000000000000000000000000087 ~> #x00000000000000000000000000000086
(assert (not (= s other)))
(assert (= (twice s) (twice other)))
