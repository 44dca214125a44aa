; The half of a sequence number that is not sent: `whole` of core/esp/src/replay.rs (RFC 4303 A2.1), in words of 64 bits as the code has them.
(set-logic QF_BV)
(define-fun window () (_ BitVec 64) #x0000000000002000)
(define-fun reach () (_ BitVec 64) (bvsub window #x0000000000000001))
(define-fun high ((top (_ BitVec 64))) (_ BitVec 64) (bvlshr top #x0000000000000020))
(define-fun top-low ((top (_ BitVec 64))) (_ BitVec 64) (bvand top #x00000000ffffffff))
(define-fun wide ((low (_ BitVec 32))) (_ BitVec 64) ((_ zero_extend 32) low))
; Case A: the window lies within one subspace of 2^32. Case B: it reaches back into the subspace before.
(define-fun is-case-a ((top (_ BitVec 64))) Bool (bvuge (top-low top) reach))
(define-fun bottom-a ((top (_ BitVec 64))) (_ BitVec 64) (bvsub (top-low top) reach))
(define-fun reached-b ((top (_ BitVec 64))) (_ BitVec 64) (bvadd (top-low top) #x0000000100000000))
(define-fun bottom-b ((top (_ BitVec 64))) (_ BitVec 64) (bvsub (reached-b top) reach))
(define-fun is-ahead ((top (_ BitVec 64)) (low (_ BitVec 32))) Bool (not (bvuge (wide low) (bottom-a top))))
(define-fun is-behind ((top (_ BitVec 64)) (low (_ BitVec 32))) Bool (bvuge (wide low) (bottom-b top)))
; Whether `checked_add` and `checked_sub` give something.
(define-fun goes ((top (_ BitVec 64)) (low (_ BitVec 32))) Bool
  (ite (is-case-a top)
    (=> (is-ahead top low) (not (= (high top) #xffffffffffffffff)))
    (=> (is-behind top low) (not (= (high top) #x0000000000000000)))))
(define-fun chosen ((top (_ BitVec 64)) (low (_ BitVec 32))) (_ BitVec 64)
  (ite (is-case-a top)
    (ite (is-ahead top low) (bvadd (high top) #x0000000000000001) (high top))
    (ite (is-behind top low) (bvsub (high top) #x0000000000000001) (high top))))
(define-fun is-whole ((top (_ BitVec 64)) (low (_ BitVec 32))) Bool
  (and (goes top low) (bvule (chosen top low) #x00000000ffffffff)))
(define-fun whole ((top (_ BitVec 64)) (low (_ BitVec 32))) (_ BitVec 64)
  (bvor (bvshl (chosen top low) #x0000000000000020) (wide low)))

; What the appendix wants: of all numbers that end so, below zero and beyond 64 bits too, the one in the 2^32 that begin with the window.
; Counted with a sign in 68 bits, where nothing wraps.
(define-fun counted ((n (_ BitVec 64))) (_ BitVec 68) ((_ zero_extend 4) n))
(define-fun first-of-window ((top (_ BitVec 64))) (_ BitVec 68) (bvsub (counted top) #x00000000000001fff))
(define-fun is-in-span ((top (_ BitVec 64)) (n (_ BitVec 68))) Bool
  (and (bvsge n (first-of-window top)) (bvslt n (bvadd (first-of-window top) #x00000000100000000))))
(define-fun ends-so ((n (_ BitVec 68)) (low (_ BitVec 32))) Bool (= ((_ extract 31 0) n) low))
(declare-const top (_ BitVec 64))
(declare-const low (_ BitVec 32))
(declare-const n (_ BitVec 68))
(declare-const m (_ BitVec 68))

;; property: the number ends so, and is in the span of 2^32 that begins with the window
;; broken by: (bvsub window #x0000000000000001) ~> window
;; broken by: (ite (is-ahead top low) (bvadd (high top) #x0000000000000001) (high top)) ~> (high top)
;; broken by: (ite (is-behind top low) (bvsub (high top) #x0000000000000001) (high top)) ~> (high top)
;; broken by: (bvule (chosen top low) #x00000000ffffffff) ~> true
;; broken by: (not (bvuge (wide low) (bottom-a top))) ~> (not (bvugt (wide low) (bottom-a top)))
(assert (is-whole top low))
(assert (not (and (ends-so (counted (whole top low)) low) (is-in-span top (counted (whole top low))))))

;; property: there is one such number, whatever the packet carries
;; too much with: (bvslt n (bvadd (first-of-window top) #x00000000100000000)) ~> (bvsle n (bvadd (first-of-window top) #x00000000100000000))
(assert (and (is-in-span top n) (is-in-span top m) (ends-so n low) (ends-so m low)))
(assert (not (= n m)))

;; property: where 64 bits can say that number it is the one that is found
;; broken by: (not (= (high top) #x0000000000000000)) ~> false
;; broken by: (bvuge (wide low) (bottom-b top)) ~> (bvugt (wide low) (bottom-b top))
;; broken by: (bvule (chosen top low) #x00000000ffffffff) ~> (bvult (chosen top low) #x00000000ffffffff)
(assert (and (is-in-span top n) (ends-so n low)))
(assert (and (bvsge n #x00000000000000000) (bvsle n #x0ffffffffffffffff)))
(assert (not (and (is-whole top low) (= n (counted (whole top low))))))

;; property: nothing on the way goes below zero or beyond 64 bits
;; broken by: (bvuge (top-low top) reach) ~> (bvuge (top-low top) #x0000000000001000)
(assert (not (and
  (=> (is-case-a top) (bvule reach (top-low top)))
  (=> (not (is-case-a top)) (and (bvule (top-low top) (reached-b top)) (bvule reach (reached-b top))))
  (=> (and (is-case-a top) (is-ahead top low) (goes top low)) (bvult (high top) (chosen top low)))
  (=> (and (not (is-case-a top)) (is-behind top low) (goes top low)) (bvult (chosen top low) (high top))))))
