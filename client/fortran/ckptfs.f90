! SPDX-License-Identifier: BSD-3-Clause
!> libckptfs for Fortran: asynchronous checkpoints of a program's memory. See ckptfs.h; names and semantics are
!> the same, and functions return 0 or a negative errno. Trailing blanks of strings are ignored.
!>
!>     use ckptfs
!>     r = ckptfs_init('/mnt/ckpt/run1')
!>     p = ckptfs_malloc('field', n * c_sizeof(1d0))
!>     call c_f_pointer(p, field, [n])
!>     r = ckptfs_protect('step', c_loc(step), c_sizeof(step))   ! of a variable with the attribute target
!>     r = ckptfs_restart(0, 0, number)
!>     r = ckptfs_checkpoint()
module ckptfs
  use, intrinsic :: iso_c_binding
  implicit none
  private

  integer(c_int32_t), parameter, public :: CKPTFS_MODE_DEFAULT = 0, CKPTFS_MODE_SYNC = 1, CKPTFS_MODE_ASYNC = 2, &
    CKPTFS_MODE_ADAPTIVE = 3, CKPTFS_MODE_PREDICTIVE = 4
  integer(c_int32_t), parameter, public :: CKPTFS_TRACKING_DEFAULT = 0, CKPTFS_TRACKING_MPROTECT = 1, &
    CKPTFS_TRACKING_USERFAULTFD = 2
  integer(c_int32_t), parameter, public :: CKPTFS_REQUIRE_MOUNT = 1, CKPTFS_SEALED = 2
  integer(c_int32_t), parameter, public :: CKPTFS_RESTART_ADDRESSES = 1
  integer(c_int64_t), parameter, public :: CKPTFS_COW_NONE = -1

  !> As struct ckptfs_options; `bytes` and `member` are set by ckptfs_init.
  type, bind(c), public :: ckptfs_options
    integer(c_size_t) :: bytes = 0
    integer(c_int32_t) :: mode = 0, tracking = 0, flags = 0, keep = 0
    integer(c_int64_t) :: cow_bytes = 0, write_rate = 0
    type(c_ptr) :: member = c_null_ptr
  end type

  !> As struct ckptfs_status.
  type, bind(c), public :: ckptfs_status_t
    integer(c_size_t) :: bytes_of_this = 0
    integer(c_int32_t) :: mode = 0, tracking = 0, clone = 0, last = 0, under_way = 0, error = 0, &
      regions = 0, regions_userfaultfd = 0
    integer(c_int64_t) :: bytes = 0, cow_bytes = 0
  end type

  public :: ckptfs_init, ckptfs_finish, ckptfs_malloc, ckptfs_realloc, ckptfs_free, ckptfs_protect, ckptfs_unprotect, ckptfs_find, &
    ckptfs_checkpoint, ckptfs_wait, ckptfs_restart, ckptfs_status, ckptfs_strerror, ckptfs_touch

  interface
    function c_init(dir, options) bind(c, name='ckptfs_init') result(r)
      import
      character(kind=c_char), intent(in) :: dir(*)
      type(ckptfs_options), intent(in) :: options
      integer(c_int) :: r
    end function
    function ckptfs_finish() bind(c, name='ckptfs_finish') result(r)
      import
      integer(c_int) :: r
    end function
    function c_malloc(name, len) bind(c, name='ckptfs_malloc') result(p)
      import
      character(kind=c_char), intent(in) :: name(*)
      integer(c_size_t), value :: len
      type(c_ptr) :: p
    end function
    function ckptfs_realloc(p, len) bind(c, name='ckptfs_realloc') result(q)
      import
      type(c_ptr), value :: p
      integer(c_size_t), value :: len
      type(c_ptr) :: q
    end function
    function ckptfs_free(p) bind(c, name='ckptfs_free') result(r)
      import
      type(c_ptr), value :: p
      integer(c_int) :: r
    end function
    function c_protect(name, p, len) bind(c, name='ckptfs_protect') result(r)
      import
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: p
      integer(c_size_t), value :: len
      integer(c_int) :: r
    end function
    function ckptfs_unprotect(p) bind(c, name='ckptfs_unprotect') result(r)
      import
      type(c_ptr), value :: p
      integer(c_int) :: r
    end function
    function c_find(name, p, len) bind(c, name='ckptfs_find') result(r)
      import
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), intent(out) :: p
      integer(c_size_t), intent(out) :: len
      integer(c_int) :: r
    end function
    function ckptfs_checkpoint() bind(c, name='ckptfs_checkpoint') result(r)
      import
      integer(c_int) :: r
    end function
    function ckptfs_wait() bind(c, name='ckptfs_wait') result(r)
      import
      integer(c_int) :: r
    end function
    function c_restart(number, flags, done) bind(c, name='ckptfs_restart') result(r)
      import
      integer(c_int32_t), value :: number, flags
      integer(c_int32_t), intent(inout) :: done
      integer(c_int) :: r
    end function
    function c_status(status) bind(c, name='ckptfs_status') result(r)
      import
      type(ckptfs_status_t), intent(inout) :: status
      integer(c_int) :: r
    end function
    subroutine ckptfs_touch(p, len) bind(c, name='ckptfs_touch')
      import
      type(c_ptr), value :: p
      integer(c_size_t), value :: len
    end subroutine
    function c_strerror(error) bind(c, name='ckptfs_strerror') result(text)
      import
      integer(c_int), value :: error
      type(c_ptr) :: text
    end function
    function c_strlen(text) bind(c, name='strlen') result(len)
      import
      type(c_ptr), value :: text
      integer(c_size_t) :: len
    end function
  end interface

contains

  !> `member`: a unique name of this process, where several take checkpoints together.
  function ckptfs_init(dir, options, member) result(r)
    character(*), intent(in) :: dir
    type(ckptfs_options), intent(in), optional :: options
    character(*), intent(in), optional :: member
    character(kind=c_char, len=:), allocatable, target :: name
    type(ckptfs_options) :: o
    integer(c_int) :: r

    if (present(options)) o = options
    o%bytes = c_sizeof(o)
    if (present(member)) then
      name = trim(member) // c_null_char
      o%member = c_loc(name)
    end if
    r = c_init(trim(dir) // c_null_char, o)
  end function

  !> Returns a null pointer on failure; the cause is logged to stderr.
  function ckptfs_malloc(name, len) result(p)
    character(*), intent(in) :: name
    integer(c_size_t), intent(in) :: len
    type(c_ptr) :: p

    p = c_malloc(trim(name) // c_null_char, len)
  end function

  function ckptfs_protect(name, p, len) result(r)
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: p
    integer(c_size_t), intent(in) :: len
    integer(c_int) :: r

    r = c_protect(trim(name) // c_null_char, p, len)
  end function

  function ckptfs_find(name, p, len) result(r)
    character(*), intent(in) :: name
    type(c_ptr), intent(out) :: p
    integer(c_size_t), intent(out) :: len
    integer(c_int) :: r

    r = c_find(trim(name) // c_null_char, p, len)
  end function

  function ckptfs_restart(number, flags, done) result(r)
    integer(c_int32_t), intent(in) :: number, flags
    integer(c_int32_t), intent(inout), optional :: done
    integer(c_int32_t) :: ignored
    integer(c_int) :: r

    if (present(done)) then
      r = c_restart(number, flags, done)
    else
      ignored = 0
      r = c_restart(number, flags, ignored)
    end if
  end function

  function ckptfs_status(status) result(r)
    type(ckptfs_status_t), intent(out) :: status
    integer(c_int) :: r

    status%bytes_of_this = c_sizeof(status)
    r = c_status(status)
  end function

  function ckptfs_strerror(error) result(text)
    integer(c_int), intent(in) :: error
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: bytes(:)
    type(c_ptr) :: p
    integer :: i

    p = c_strerror(error)
    call c_f_pointer(p, bytes, [c_strlen(p)])
    allocate (character(len=size(bytes)) :: text)
    do i = 1, size(bytes)
      text(i:i) = bytes(i)
    end do
  end function
end module
